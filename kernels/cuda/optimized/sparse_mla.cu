// K1, sparse MLA decode (spec 2.9): one query a sequence, 64 heads of 512, keys = values = the chosen rows of one cache.
//
// Split over keys: a block takes HEADS heads of one sequence and a range of key tiles, keeps Q and two key tiles in shared memory and
// the output in registers. Scores are exact bf16 products summed in f32; the softmax is in base 2 with the scale after the
// product; the row sum takes P unrounded, the product with V takes P in bf16. Partials (PARTIAL_BF16: 0 f32, 1 bf16) and
// their log-sum-exp (f32) are merged by `mla_merge`, which adds the sink, in order of the splits: no atomics.
//
// HEADS 16, 32 or 64, KEYS 32 or 64 (a tile), LEAST (blocks at once on a multiprocessor), set by kernels.toml. Always 256 threads.
#include "ptx.cuh"

struct MlaArgs {
    const bf16* q;      // [batch, 64, 512]
    const bf16* cache;  // [rows, 512]
    const int* chosen;  // [batch, keys]: rows of the cache; negative or past its end: no key
    const float* sink;  // [64], a logit with a zero value
    void* partial;      // [batch, splits, 64, 512] f32 or bf16, normalised within its split
    float* lse;         // [batch, splits, 64], base 2; -inf where a split has no key
    float* scores;      // [batch, 64, keys]: the naive counterpart's
    void* out;          // [batch, 64, 512] bf16 (optimized) or f32 (naive)
    int batch, keys, splits, rows;
    float scale;        // 512^-0.5
};

#define DIM 512
#define THREADS 256
#define HEAD_TILES (HEADS / 16)
#define KEY_GROUPS (8 / HEAD_TILES)
#define TILES (KEYS / KEY_GROUPS / 8)  // 8-key tiles a warp
#define Q_BYTES (HEADS * DIM * 2)
#define KV_BYTES (KEYS * DIM * 2)
#define P_BYTES (HEADS * KEYS * 2)
#define ROW_STATE (KEY_GROUPS + 1)

// Shared memory is swizzled by 16-byte chunks so that the 8 rows of an ldmatrix lie in 8 different bank groups.
DEVICE int wide(int row, int chunk) { return row * (DIM * 2) + ((chunk ^ (row & 7)) << 4); }
DEVICE int narrow(int row, int chunk) {
    return row * (KEYS * 2) + ((chunk ^ (KEYS == 64 ? row & 7 : (row >> 1) & 3)) << 4);
}

// The cache row of a key, or -1.
DEVICE int row_of(const MlaArgs& a, int sequence, int key) {
    int row = key < a.keys ? a.chosen[(long long)sequence * a.keys + key] : -1;
    return row < a.rows ? row : -1;
}

// Lane i of a warp holds the cache row of tile row (warp / 2) + 4 i.
DEVICE int prefetch_rows(const MlaArgs& a, int sequence, int tile) {
    int lane = threadIdx.x & 31, key = tile * KEYS + (threadIdx.x >> 6) + 4 * lane;
    return lane < KEYS / 4 ? row_of(a, sequence, key) : -1;
}

DEVICE void load_tile(const MlaArgs& a, char* kv, int rows) {
    int chunk = threadIdx.x & 63, group = threadIdx.x >> 6;
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) {
        int row = __shfl_sync(0xffffffffu, rows, i);
        cp_async(kv + wide(group + 4 * i, chunk), a.cache + (long long)(row < 0 ? 0 : row) * DIM + chunk * 8, row >= 0);
    }
}

// Grid: (batch, 64 / HEADS, splits).
extern "C" __global__ void __launch_bounds__(THREADS, LEAST) mla_split(MlaArgs a) {
    extern __shared__ __align__(128) char shared[];
    char* q = shared;
    char* kv = shared + Q_BYTES;
    char* p = kv + 2 * KV_BYTES;
    float* row_max = (float*)(p + P_BYTES);       // [KEY_GROUPS][HEADS]
    float* row_scale = row_max + KEY_GROUPS * HEADS;  // [HEADS]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int head_tile = warp % HEAD_TILES, key_group = warp / HEAD_TILES;
    const int sequence = blockIdx.x, first_head = blockIdx.y * HEADS, split = blockIdx.z;
    const int tiles = (a.keys + KEYS - 1) / KEYS;
    const int begin = split * tiles / a.splits, end = (split + 1) * tiles / a.splits;
    const float to_log2 = a.scale * 1.4426950408889634f;

    wait_for_previous();
    int rows = prefetch_rows(a, sequence, begin);
    int rows_next = prefetch_rows(a, sequence, begin + 1);
    const bf16* q_from = a.q + ((long long)sequence * 64 + first_head) * DIM;
    for (int i = threadIdx.x; i < HEADS * 64; i += THREADS)
        cp_async(q + wide(i >> 6, i & 63), q_from + (long long)i * 8, true);
    if (begin < end) load_tile(a, kv, rows);
    cp_commit();
    if (begin + 1 < end) load_tile(a, kv + KV_BYTES, rows_next);
    cp_commit();

    float acc[HEAD_TILES][8][4] = {};
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
    const int row0 = head_tile * 16 + g;
    for (int tile = begin; tile < end; tile++) {
        const char* k = kv + ((tile - begin) & 1) * KV_BYTES;
        int chosen[TILES][2];
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                chosen[n][c] = row_of(a, sequence, tile * KEYS + (key_group * TILES + n) * 8 + 2 * t + c);
            }
        rows = prefetch_rows(a, sequence, tile + 2);
        cp_wait<1>();
        __syncthreads();

        float s[TILES][4] = {};
        const int first_key = key_group * TILES * 8;
#if TILES > 1
#pragma unroll 4
        for (int step = 0; step < DIM / 16; step++) {
            u32 x[4];
            ldmatrix(x, q + wide(head_tile * 16 + (lane & 15), step * 2 + (lane >> 4)));
#pragma unroll
            for (int n = 0; n < TILES; n += 2) {
                u32 y[4];
                ldmatrix(y, k + wide(first_key + n * 8 + (lane & 7) + ((lane >> 4) << 3), step * 2 + ((lane >> 3) & 1)));
                mma(s[n], x[0], x[1], x[2], x[3], y[0], y[1]);
                mma(s[n + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
            }
        }
#else
        static_assert(TILES == 1, "8 keys a warp");
        float odd[4] = {};
#pragma unroll 4
        for (int step = 0; step < DIM / 16; step += 2) {
            u32 x[4], y[4];
            ldmatrix(y, k + wide(first_key + (lane & 7), step * 2 + (lane >> 3)));
            ldmatrix(x, q + wide(head_tile * 16 + (lane & 15), step * 2 + (lane >> 4)));
            mma(s[0], x[0], x[1], x[2], x[3], y[0], y[1]);
            ldmatrix(x, q + wide(head_tile * 16 + (lane & 15), step * 2 + 2 + (lane >> 4)));
            mma(odd, x[0], x[1], x[2], x[3], y[2], y[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) s[0][i] += odd[i];
#endif
        float high[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = chosen[n][i & 1] < 0 ? -INFINITY : s[n][i] * to_log2;
                high[i >> 1] = fmaxf(high[i >> 1], s[n][i]);
            }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            high[i] = fmaxf(high[i], __shfl_xor_sync(0xffffffffu, high[i], 1));
            high[i] = fmaxf(high[i], __shfl_xor_sync(0xffffffffu, high[i], 2));
            if (t == 0) row_max[key_group * HEADS + row0 + i * 8] = high[i];
        }
        __syncthreads();
        float shift[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float now = top[i];
#pragma unroll
            for (int w = 0; w < KEY_GROUPS; w++) now = fmaxf(now, row_max[w * HEADS + row0 + i * 8]);
            shift[i] = now == -INFINITY ? 0.0f : now;  // no key so far: every p is 2^-inf = 0
            float shrink = exp2_fast(top[i] - shift[i]);
            top[i] = now;
            sum[i] *= shrink;
            if (key_group == 0 && t == 0) row_scale[row0 + i * 8] = shrink;
        }
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float p0 = exp2_fast(s[n][i * 2] - shift[i]), p1 = exp2_fast(s[n][i * 2 + 1] - shift[i]);
                sum[i] += p0 + p1;
                *(u32*)(p + narrow(row0 + i * 8, key_group * TILES + n) + t * 4) = pack_bf16(p0, p1);
            }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEAD_TILES; h++) {
            float s0 = row_scale[h * 16 + g], s1 = row_scale[h * 16 + g + 8];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                acc[h][n][0] *= s0;
                acc[h][n][1] *= s0;
                acc[h][n][2] *= s1;
                acc[h][n][3] *= s1;
            }
        }
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) {
            u32 x[HEAD_TILES][4];
#pragma unroll
            for (int h = 0; h < HEAD_TILES; h++)
                ldmatrix(x[h], p + narrow(h * 16 + (lane & 15), step * 2 + (lane >> 4)));
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                u32 y[4];
                ldmatrix_trans(y, k + wide(step * 16 + (lane & 15), warp * 8 + n + (lane >> 4)));
#pragma unroll
                for (int h = 0; h < HEAD_TILES; h++) {
                    mma(acc[h][n], x[h][0], x[h][1], x[h][2], x[h][3], y[0], y[1]);
                    mma(acc[h][n + 1], x[h][0], x[h][1], x[h][2], x[h][3], y[2], y[3]);
                }
            }
        }
        __syncthreads();
        if (tile + 2 < end) load_tile(a, kv + ((tile - begin) & 1) * KV_BYTES, rows);
        cp_commit();
    }
    let_next();  // not earlier: blocks of the merge would take room from this kernel
    cp_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
        if (t == 0) row_max[key_group * HEADS + row0 + i * 8] = sum[i];
    }
    __syncthreads();
    if (key_group == 0 && t == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int head = row0 + i * 8;
            float all = 0.0f;
#pragma unroll
            for (int w = 0; w < KEY_GROUPS; w++) all += row_max[w * HEADS + head];
            row_scale[head] = all > 0.0f ? 1.0f / all : 0.0f;
            a.lse[((long long)sequence * a.splits + split) * 64 + first_head + head] =
                all > 0.0f ? top[i] + log2f(all) : -INFINITY;
        }
    }
    __syncthreads();
    const long long at = (((long long)sequence * a.splits + split) * 64 + first_head) * DIM;
#pragma unroll
    for (int h = 0; h < HEAD_TILES; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int head = h * 16 + g + i * 8;
            float w = row_scale[head];
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                long long to = at + (long long)head * DIM + warp * 64 + n * 8;
#if PARTIAL_BF16
                // Neighbours swap, so that a lane stores 8 bytes and four lanes a whole 32-byte sector.
                u32 first = pack_bf16(acc[h][n][i * 2] * w, acc[h][n][i * 2 + 1] * w);
                u32 second = pack_bf16(acc[h][n + 1][i * 2] * w, acc[h][n + 1][i * 2 + 1] * w);
                u32 other = __shfl_xor_sync(0xffffffffu, t & 1 ? first : second, 1);
                uint2 both = t & 1 ? make_uint2(other, second) : make_uint2(first, other);
                *(uint2*)((bf16*)a.partial + to + (t & 1) * 8 + (t >> 1) * 4) = both;
#else
#pragma unroll
                for (int j = 0; j < 2; j++)
                    *(float2*)((float*)a.partial + to + j * 8 + 2 * t) = make_float2(acc[h][n + j][i * 2] * w, acc[h][n + j][i * 2 + 1] * w);
#endif
            }
        }
}

#define AHEAD 8  // splits whose loads are under way at once

// Grid: batch * 64 blocks of 128 threads, 4 values a thread; at most 32 splits, lane s of each warp weighs split s.
extern "C" __global__ void __launch_bounds__(128) mla_merge(MlaArgs a) {
    const int sequence = blockIdx.x >> 6, head = blockIdx.x & 63, lane = threadIdx.x & 31, d = threadIdx.x * 4;
    const long long first = (long long)sequence * a.splits;
    wait_for_previous();
    float lse = lane < a.splits ? a.lse[(first + lane) * 64 + head] : -INFINITY;
    const float sink = a.sink[head] * 1.4426950408889634f;
    float top = fmaxf(sink, lse);
#pragma unroll
    for (int i = 16; i > 0; i >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, i));
    const float weight = exp2_fast(lse - top);
    float den = exp2_fast(sink - top), out[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int s0 = 0; s0 < a.splits; s0 += AHEAD) {
        float in[AHEAD][4];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const long long at = ((first + s0 + j) * 64 + head) * DIM + d;
            const bool there = s0 + j < a.splits;
#if PARTIAL_BF16
            const uint2 v = there ? *(const uint2*)((const bf16*)a.partial + at) : make_uint2(0, 0);
            in[j][0] = low_bf16(v.x);
            in[j][1] = high_bf16(v.x);
            in[j][2] = low_bf16(v.y);
            in[j][3] = high_bf16(v.y);
#else
            const float4 v = there ? *(const float4*)((const float*)a.partial + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            in[j][0] = v.x;
            in[j][1] = v.y;
            in[j][2] = v.z;
            in[j][3] = v.w;
#endif
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const float w = __shfl_sync(0xffffffffu, weight, (s0 + j) & 31);  // of a split that isn't there 0
            den += w;
#pragma unroll
            for (int i = 0; i < 4; i++) out[i] = fmaf(w, in[j][i], out[i]);
        }
    }
    uint2 r = make_uint2(pack_bf16(out[0] / den, out[1] / den), pack_bf16(out[2] / den, out[3] / den));
    *(uint2*)((bf16*)a.out + ((long long)sequence * 64 + head) * DIM + d) = r;
}
