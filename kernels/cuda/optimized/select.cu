// K2, exact top-k of index scores (spec 2.8): larger score first, then the lower index; the chosen ones in order of index, then -1.
//
// No sort: the k-th largest score is found bit by bit by counting, values in registers. Scores are cut into chunks of 8192; a chunk
// gives its own best k (nothing that isn't among them can be among the best k of all), and `select_merge` chooses among those. A
// chunk past the visible keys ends at once, so does the merge where one chunk was all. Counting is exact: no tolerance.
#include "ptx.cuh"

struct SelectArgs {
    const float* logits;   // [batch, room]
    const int* visible;    // [batch]
    u32* keys;             // [batch, chunks, topk]: ordered scores of a chunk's best, 0 where there are fewer
    int* places;           // [batch, chunks, topk]: their indices, -1 where there are fewer
    int* chosen;           // [batch, topk]: ascending, then -1
    int batch, room, topk, chunks;
};

#define THREADS 1024
#define CHUNK 8192
#define MERGE 16  // candidates a thread of the merge

// Unsigned numbers in the order of the scores; -0 is +0. Never 0, which stands for no score.
DEVICE u32 ordered(float score) {
    u32 bits = __float_as_uint(score + 0.0f);
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

DEVICE int block_sum(int v, int* room) {
    v = __reduce_add_sync(0xffffffffu, v);
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = v;
    __syncthreads();
    return __reduce_add_sync(0xffffffffu, room[threadIdx.x & 31]);
}

// Of values in order of index (a thread holds N neighbours; 0: none), the place in the output of each of the best `topk`, or -1.
// `room` holds 2 x 32 ints.
template <int N>
DEVICE void choose(const u32 (&v)[N], int topk, int (&place)[N], int* room, int& kept) {
    u32 least = 0;  // the largest value that at least topk values reach
    for (int bit = 31; bit >= 0; bit--) {
        const u32 tried = least | (1u << bit);
        int count = 0;
#pragma unroll
        for (int i = 0; i < N; i++) count += v[i] >= tried;
        const int all = block_sum(count, room + (bit & 1) * 32);
        if (all >= topk) least = tried;
        if (all == topk) break;  // exactly these
    }
    int more = 0, same = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        more += v[i] > least;
        same += v[i] == least && v[i] != 0;
    }
    // Sums over the threads before this one: both counts are at most 16384, so they fit into one word.
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int mine = more << 16 | same, before = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int from = __shfl_up_sync(0xffffffffu, before, d);
        if (lane >= d) before += from;
    }
    __syncthreads();
    if (lane == 31) room[warp] = before;
    __syncthreads();
    int warps = room[lane];
    const int all = __reduce_add_sync(0xffffffffu, warps);
    warps = __reduce_add_sync(0xffffffffu, lane < warp ? warps : 0);
    before += warps - mine;
    const int wanted = topk - (all >> 16);  // of those that equal `least`, the first ones
    kept = (all >> 16) + min(wanted, all & 0xffff);
    int above = before >> 16, equal = before & 0xffff;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const bool is_more = v[i] > least, is_same = v[i] == least && v[i] != 0;
        place[i] = is_more || (is_same && equal < wanted) ? above + min(equal, wanted) : -1;
        above += is_more;
        equal += is_same;
    }
}

// Grid: (chunks, batch). Where the visible keys are one chunk it writes `chosen`, else its candidates.
extern "C" __global__ void __launch_bounds__(THREADS, 1) select_chunk(SelectArgs a) {
    __shared__ int room[64];
    const int sequence = blockIdx.y, chunk = blockIdx.x, visible = min(a.visible[sequence], a.room);
    const int first = chunk * CHUNK;
    const bool last = visible <= CHUNK;
    wait_for_previous();
    let_next();
    if (first >= visible && chunk > 0) return;
    u32 v[8];
    int place[8], kept;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int at = first + threadIdx.x * 8 + i;
        v[i] = at < visible ? ordered(a.logits[(long long)sequence * a.room + at]) : 0;
    }
    choose(v, a.topk, place, room, kept);
    const long long to = ((long long)sequence * a.chunks + chunk) * a.topk;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (place[i] < 0) continue;
        int at = first + threadIdx.x * 8 + i;
        if (last) a.chosen[(long long)sequence * a.topk + place[i]] = at;
        else {
            a.keys[to + place[i]] = v[i];
            a.places[to + place[i]] = at;
        }
    }
    for (int i = kept + threadIdx.x; i < a.topk; i += THREADS) {
        if (last) a.chosen[(long long)sequence * a.topk + i] = -1;
        else {
            a.keys[to + i] = 0;
            a.places[to + i] = -1;
        }
    }
}

// Grid: batch. Candidates of the chunks that hold visible keys, at most 16 * 1024.
extern "C" __global__ void __launch_bounds__(THREADS, 1) select_merge(SelectArgs a) {
    __shared__ int room[64];
    const int sequence = blockIdx.x, visible = min(a.visible[sequence], a.room);
    wait_for_previous();
    if (visible <= CHUNK) return;
    const int all = (visible + CHUNK - 1) / CHUNK * a.topk;
    const long long from = (long long)sequence * a.chunks * a.topk;
    u32 v[MERGE];
    int place[MERGE], kept;
#pragma unroll
    for (int i = 0; i < MERGE; i++) {
        int at = threadIdx.x * MERGE + i;
        v[i] = at < all ? a.keys[from + at] : 0;
    }
    choose(v, a.topk, place, room, kept);
#pragma unroll
    for (int i = 0; i < MERGE; i++)
        if (place[i] >= 0) a.chosen[(long long)sequence * a.topk + place[i]] = a.places[from + threadIdx.x * MERGE + i];
    for (int i = kept + threadIdx.x; i < a.topk; i += THREADS) a.chosen[(long long)sequence * a.topk + i] = -1;
}
