// K4, routed experts with FP4 weights and bf16 activations (spec 2.11, patches mxfp4-moe and nvfp4-moe with act=bf16): E2M1 codes as
// the checkpoint holds them, multiplied as codes (exact in bf16); a block's scale is applied to the f32 sum of its products, so
// every 32 (MXFP4) or 16 (NVFP4) of K the tensor core's accumulator is emptied.
//
// Slots (a token's picks) are listed by expert, then: gate and up together with the clamped SwiGLU and the routing weight, down, and a
// sum over a token's experts in ascending order of expert, f32. Weights are the rows of the tensor-core product, tokens its columns:
// few tokens cost little, and each weight byte is read once for TOKENS of them. No atomics.
//
// NVFP4 (0: E8M0 scales for 32; 1: E4M3 scales for 16 and an f32 one a matrix), FUSED_CLAMP (0: gate and up are rounded to bf16 before
// the clamp, 1: they are not), TOKENS (8 to 64 a tile, a multiple of 8), STAGES, LEAST (blocks at once on a multiprocessor): set by kernels.toml. 256 threads.
#include "ptx.cuh"

typedef unsigned char u8;

struct MoeArgs {
    const bf16* x;           // [tokens, width]
    const int* expert;       // [tokens, picks]; outside 0..experts: no expert
    const float* weight;     // [tokens, picks]
    const u8* codes[3];      // gate, up [experts, inner, width / 2]; down [experts, width, inner / 2]: low nibble first
    const u8* scales[3];     // a byte for each block of a row
    const float* global[3];  // [experts]: NVFP4's second scale
    int* count;              // [experts]
    int* list;               // [experts, tokens * picks]: slots in order
    bf16* act;               // [tokens * picks, inner]
    bf16* out;               // [tokens * picks, width]
    float* sum;              // [tokens, width]
    int tokens, picks, experts, width, inner;
    float limit;
};

#define THREADS (WARPS * 32)
#define AT_ONCE (__CUDA_ARCH__ >= 1200 ? 2 : LEAST)  // an sm_120 multiprocessor has room for no more
#define ROWS (16 * MT * WARPS / WT)  // of weights a block
#define N_TILES (TOKENS / 8 / WT)    // of 8 tokens a warp
#define CODE_ROW (SLAB / 2)          // bytes
#define X_ROW (SLAB * 2)
#define BLOCKS_OF (SLAB / (NVFP4 ? 16 : 32))  // scales of a row and slab
#define CODE_BYTES (ROWS * CODE_ROW)
#define SCALE_BYTES (ROWS * BLOCKS_OF)
#define STAGE_BYTES (CODE_BYTES + SCALE_BYTES + TOKENS * X_ROW)
#define WIDE_SCALES (MT * 16 * BLOCKS_OF)  // f32 ones of a warp

// 16-byte chunks are permuted so that 8 rows of a chunk lie in 8 different bank groups. Both: rows of 128 bytes, or of 64.
DEVICE int code_at(int row, int chunk) { return row * CODE_ROW + ((chunk ^ (SLAB == 256 ? row & 7 : (row >> 1) & 3)) << 4); }
// Rows of at least 256 bytes; those of odd rows swapped by 64 bytes.
DEVICE int x_at(int row, int chunk) { return row * X_ROW + ((chunk ^ ((row & 1) << 2)) << 4); }

// Two E2M1 codes, nibble LEFT of each half, to two bf16. The product puts a copy of the code's sign into its place and one of its
// exponent and mantissa: 2^-126 times the value (the subnormal too), so one exact product does the rest.
template <int LEFT>
DEVICE u32 value_pair(u32 v) {
    return times_bf16(((v & (LEFT ? 0x00f000f0u : 0x000f000fu)) * (LEFT ? 0x104u : 0x1040u)) & 0x81c081c0u, 0x7e807e80u);
}

DEVICE float scale_of(u32 byte) {
#if NVFP4
    return low_f16(wide_codes(byte));
#else
    return __uint_as_float(byte == 0 ? 0x00400000u : byte == 255 ? 0x7fc00000u : byte << 23);
#endif
}

// Grid: experts. Lists an expert's slots in ascending order.
extern "C" __global__ void __launch_bounds__(256) moe_group(MoeArgs a) {
    __shared__ int warps[8];
    const int expert = blockIdx.x, slots = a.tokens * a.picks, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int* list = a.list + (long long)expert * slots;
    wait_for_previous();
    let_next();
    int before = 0;
    for (int base = 0; base < slots; base += 256) {
        const int at = base + threadIdx.x;
        const bool hit = at < slots && a.expert[at] == expert;
        const u32 ballot = __ballot_sync(0xffffffffu, hit);
        if (lane == 0) warps[warp] = __popc(ballot);
        __syncthreads();
        int here = before;
        for (int w = 0; w < 8; w++) {
            if (w < warp) here += warps[w];
            before += warps[w];
        }
        if (hit) list[here + __popc(ballot & ((1u << lane) - 1))] = at;
        __syncthreads();
    }
    if (threadIdx.x == 0) a.count[expert] = before;
}

// Which expert a tile of tokens belongs to, and its first place in that expert's list; false past the last tile.
DEVICE bool find_tile(const MoeArgs& a, int tile, int* room, int& expert, int& first) {
    const int each = (a.experts + THREADS - 1) / THREADS, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int mine = 0;
    for (int i = 0; i < each; i++) {
        int e = threadIdx.x * each + i;
        if (e < a.experts) mine += (a.count[e] + TOKENS - 1) / TOKENS;
    }
    int before = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int from = __shfl_up_sync(0xffffffffu, before, d);
        if (lane >= d) before += from;
    }
    if (lane == 31) room[warp] = before;
    if (threadIdx.x == 0) room[WARPS] = -1;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += room[w];
    before -= mine;
    if (tile >= before && tile < before + mine) {
        for (int i = 0; i < each; i++) {
            int e = threadIdx.x * each + i;
            if (e >= a.experts) break;
            int tiles = (a.count[e] + TOKENS - 1) / TOKENS;
            if (tile < before + tiles) {
                room[WARPS] = e;
                room[WARPS + 1] = (tile - before) * TOKENS;
                break;
            }
            before += tiles;
        }
    }
    __syncthreads();
    expert = room[WARPS];
    first = room[WARPS + 1];
    return expert >= 0;
}

// UP: half of the rows of gate and the same ones of up; else all of down.
template <bool UP>
DEVICE void load_slab(const MoeArgs& a, char* stage, const int* slots, int expert, int row0, int slab) {
    const int k = UP ? a.width : a.inner, rows = UP ? a.inner : a.width;
    const auto matrix_row = [&](int r, int& matrix) {
        matrix = UP ? (r >= ROWS / 2) : 2;
        return row0 + (UP ? r % (ROWS / 2) : r);
    };
#pragma unroll
    for (int i = 0; i < ROWS * (CODE_ROW / 16) / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS, r = at / (CODE_ROW / 16), chunk = at % (CODE_ROW / 16);
        int matrix;
        const int row = matrix_row(r, matrix);
        const long long from = ((long long)expert * rows + row) * (k / 2) + slab * CODE_ROW + chunk * 16;
        cp_async(stage + code_at(r, chunk), a.codes[matrix] + (row < rows ? from : 0), row < rows);
    }
    char* scales = stage + CODE_BYTES;
    if (threadIdx.x < ROWS) {
        int matrix;
        const int row = matrix_row(threadIdx.x, matrix);
        const long long from = (((long long)expert * rows + row) * (k / SLAB) + slab) * BLOCKS_OF;
        cp_async_few<BLOCKS_OF>(scales + threadIdx.x * BLOCKS_OF, a.scales[matrix] + (row < rows ? from : 0), row < rows);
    }
    char* x = scales + SCALE_BYTES;
#pragma unroll
    for (int i = 0; i < TOKENS * (X_ROW / 16) / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS, token = at / (X_ROW / 16), chunk = at % (X_ROW / 16), slot = slots[token];
        const bf16* row = UP ? a.x + (long long)(slot < 0 ? 0 : slot / a.picks) * k : a.act + (long long)(slot < 0 ? 0 : slot) * k;
        cp_async(x + x_at(token, chunk), row + slab * SLAB + chunk * 8, slot >= 0);
    }
}

// total += the products of one slab: a warp's MT * 16 rows by its N_TILES * 8 tokens. `wide` is its own room for scales.
DEVICE void multiply(const char* stage, float* wide, float (&total)[MT][N_TILES][4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int first_row = warp / WT * MT * 16, first_token = warp % WT * N_TILES * 8;
    const u32* bytes = (const u32*)(stage + CODE_BYTES + first_row * BLOCKS_OF);
    for (int i = lane; i < WIDE_SCALES / 4; i += 32) {
        const u32 v = bytes[i];
        ((float4*)wide)[i] = make_float4(scale_of(v & 255), scale_of(v >> 8 & 255), scale_of(v >> 16 & 255), scale_of(v >> 24));
    }
    __syncwarp();
    // The permutation of chunks as an exclusive or of the whole address: rows g and g + 8 have the same.
    const int code_base = code_at(first_row + g, 0) + t * 4;
    const int x_base = x_at(first_token + g, t);
    const char* x = stage + CODE_BYTES + SCALE_BYTES;
#pragma unroll UNROLL
    for (int block = 0; block < SLAB / 32; block++) {
        u32 w[MT][2][4];  // [step of 16]
        float f[MT][2][1 + NVFP4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int row = (m * 2 + r) * 8;
                const char* from = stage + ((code_base ^ (block << 4)) + row * CODE_ROW);
#if NVFP4
                from -= t * 4;
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    // Codes 4t..4t+3 of each half.
                    const u32 four = *(const unsigned short*)(from + s * 8 + t * 2);
#if NATURAL
                    w[m][s][r] = value_pair<0>(__byte_perm(four, four >> 4, 0x4400));      // 0, 1
                    w[m][s][r + 2] = value_pair<0>(__byte_perm(four, four >> 4, 0x5511));  // 2, 3
#else
                    const u32 both = __byte_perm(four, 0, 0x1100);
                    w[m][s][r] = value_pair<0>(both);      // 0, 2
                    w[m][s][r + 2] = value_pair<1>(both);  // 1, 3
#endif
                }
                const float2 v = *(const float2*)(wide + (row + g) * BLOCKS_OF + block * 2);
                f[m][r][0] = v.x;
                f[m][r][NVFP4] = v.y;
#else
                const u32 eight = *(const u32*)from;  // codes 8t..8t+7
#if NATURAL
                const u32 odd = eight >> 4;
                w[m][0][r] = value_pair<0>(__byte_perm(eight, odd, 0x4400));      // 0, 1
                w[m][0][r + 2] = value_pair<0>(__byte_perm(eight, odd, 0x5511));  // 2, 3
                w[m][1][r] = value_pair<0>(__byte_perm(eight, odd, 0x6622));
                w[m][1][r + 2] = value_pair<0>(__byte_perm(eight, odd, 0x7733));
#else
                w[m][0][r] = value_pair<0>(eight);      // 0, 4
                w[m][0][r + 2] = value_pair<1>(eight);  // 1, 5
                w[m][1][r] = value_pair<0>(eight >> 8);
                w[m][1][r + 2] = value_pair<1>(eight >> 8);
#endif
                f[m][r][0] = wide[(row + g) * BLOCKS_OF + block];
#endif
            }
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
            u32 b[2][2];
#if NVFP4
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const int chunk = block * 4 + s * 2 + (t >> 1);
                const uint2 v = *(const uint2*)(x + x_at(first_token + n * 8 + g, chunk) + (t & 1) * 8);
                b[s][0] = NATURAL ? v.x : __byte_perm(v.x, v.y, 0x5410);
                b[s][1] = NATURAL ? v.y : __byte_perm(v.x, v.y, 0x7632);
            }
#else
            const uint4 v = *(const uint4*)(x + ((x_base ^ (block << 6)) + n * 8 * X_ROW));
            b[0][0] = NATURAL ? v.x : __byte_perm(v.x, v.z, 0x5410);
            b[0][1] = NATURAL ? v.y : __byte_perm(v.x, v.z, 0x7632);
            b[1][0] = NATURAL ? v.z : __byte_perm(v.y, v.w, 0x5410);
            b[1][1] = NATURAL ? v.w : __byte_perm(v.y, v.w, 0x7632);
#endif
#pragma unroll
            for (int m = 0; m < MT; m++) {
                float d[4];
                mma_fresh(d, w[m][0][0], w[m][0][1], w[m][0][2], w[m][0][3], b[0][0], b[0][1]);
#if NVFP4
#pragma unroll
                for (int i = 0; i < 4; i++) total[m][n][i] = fmaf(d[i], f[m][i >> 1][0], total[m][n][i]);
                mma_fresh(d, w[m][1][0], w[m][1][1], w[m][1][2], w[m][1][3], b[1][0], b[1][1]);
#else
                mma(d, w[m][1][0], w[m][1][1], w[m][1][2], w[m][1][3], b[1][0], b[1][1]);
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) total[m][n][i] = fmaf(d[i], f[m][i >> 1][NVFP4], total[m][n][i]);
            }
        }
    }
}

// Blocks of a tile of tokens go side by side: they share its x, and tiles of an expert its weights, in the L2 cache.
DEVICE void place(int& tile, int& row0, int rows) {
    const int at = blockIdx.y * gridDim.x + blockIdx.x;
    tile = at / gridDim.y;
    row0 = at % gridDim.y * rows;
}

template <bool UP>
DEVICE bool run_tile(const MoeArgs& a, char* shared, int* slots, int* room, int& row0, int& expert, float (&total)[MT][N_TILES][4]) {
    int tile, first;
    place(tile, row0, UP ? ROWS / 2 : ROWS);
    wait_for_previous();
    let_next();
    if (!find_tile(a, tile, room, expert, first)) return false;
    const int all = a.tokens * a.picks;
    if (threadIdx.x < TOKENS) {
        const int at = first + threadIdx.x;
        slots[threadIdx.x] = at < a.count[expert] ? a.list[(long long)expert * all + at] : -1;
    }
    __syncthreads();
    const int slabs = (UP ? a.width : a.inner) / SLAB;
    float* wide = (float*)(shared + STAGES * STAGE_BYTES) + (threadIdx.x >> 5) * WIDE_SCALES;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < slabs) load_slab<UP>(a, shared + s * STAGE_BYTES, slots, expert, row0, s);
        cp_commit();
    }
    int stage = 0, next = STAGES - 1;
    for (int slab = 0; slab < slabs; slab++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (slab + STAGES - 1 < slabs) load_slab<UP>(a, shared + next * STAGE_BYTES, slots, expert, row0, slab + STAGES - 1);
        cp_commit();
        multiply(shared + stage * STAGE_BYTES, wide, total);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_wait<0>();
    __syncthreads();
    return true;
}

DEVICE bf16 to_bf16(float v) { return (bf16)pack_bf16(v, 0.0f); }

// Grid: (tiles of tokens, inner / (ROWS / 2)). The first half of the warps holds gate, the second the same rows of up.
extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) moe_up(MoeArgs a) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int slots[TOKENS], room[WARPS + 2];
    float total[MT][N_TILES][4] = {};
    int row0, expert;
    if (!run_tile<true>(a, shared, slots, room, row0, expert, total)) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int first_row = warp / WT * MT * 16, first_token = warp % WT * N_TILES * 8;
    float* ups = (float*)shared + threadIdx.x % (THREADS / 2);  // [MT * N_TILES * 4][THREADS / 2]
    if (warp >= WARPS / 2)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) ups[((m * N_TILES + n) * 4 + i) * (THREADS / 2)] = total[m][n][i];
    __syncthreads();
    if (warp >= WARPS / 2) return;
#if NVFP4
    const float gate_scale = a.global[0][expert], up_scale = a.global[1][expert];
#endif
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int slot = slots[first_token + n * 8 + t * 2 + (i & 1)], row = row0 + first_row + m * 16 + g + (i >> 1) * 8;
                if (slot < 0 || row >= a.inner) continue;
                float gate = total[m][n][i], up = ups[((m * N_TILES + n) * 4 + i) * (THREADS / 2)];
#if NVFP4
                gate *= gate_scale;
                up *= up_scale;
#endif
#if !FUSED_CLAMP
                gate = low_bf16(pack_bf16(gate, 0.0f));
                up = low_bf16(pack_bf16(up, 0.0f));
#endif
                // Comparisons, not minima: a NaN stays one.
                gate = gate > a.limit ? a.limit : gate;
                up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
                const float silu = gate / (1.0f + expf(-gate));
                a.act[(long long)slot * a.inner + row] = to_bf16(silu * up * a.weight[slot]);
            }
}

// Grid: (tiles of tokens, width / ROWS).
extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) moe_down(MoeArgs a) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int slots[TOKENS], room[WARPS + 2];
    float total[MT][N_TILES][4] = {};
    int row0, expert;
    if (!run_tile<false>(a, shared, slots, room, row0, expert, total)) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int first_row = warp / WT * MT * 16, first_token = warp % WT * N_TILES * 8;
#if NVFP4
    const float scale = a.global[2][expert];
#endif
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int slot = slots[first_token + n * 8 + t * 2 + (i & 1)], row = row0 + first_row + m * 16 + g + (i >> 1) * 8;
                if (slot < 0 || row >= a.width) continue;
                float v = total[m][n][i];
#if NVFP4
                v *= scale;
#endif
                a.out[(long long)slot * a.width + row] = to_bf16(v);
            }
}

// Grid: (tokens, width / 1024). A token's experts in ascending order; slots without an expert add nothing.
extern "C" __global__ void __launch_bounds__(256) moe_sum(MoeArgs a) {
    const int token = blockIdx.x, at = (blockIdx.y * 256 + threadIdx.x) * 4;
    wait_for_previous();
    if (at >= a.width) return;
    float sum[4] = {};
    int last = -1, last_pick = -1;
    for (int n = 0; n < a.picks; n++) {
        int best = -1, expert = a.experts;
        for (int p = 0; p < a.picks; p++) {
            const int e = a.expert[token * a.picks + p];
            if (e < 0 || e >= a.experts) continue;
            const bool after = e > last || (e == last && p > last_pick);
            if (after && e < expert) {
                expert = e;
                best = p;
            }
        }
        if (best < 0) break;
        last = expert;
        last_pick = best;
        const uint2 v = *(const uint2*)(a.out + ((long long)token * a.picks + best) * a.width + at);
        sum[0] += low_bf16(v.x);
        sum[1] += high_bf16(v.x);
        sum[2] += low_bf16(v.y);
        sum[3] += high_bf16(v.y);
    }
    *(float4*)(a.sum + (long long)token * a.width + at) = make_float4(sum[0], sum[1], sum[2], sum[3]);
}
