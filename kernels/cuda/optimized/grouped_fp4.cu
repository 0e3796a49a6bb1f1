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

#define THREADS 256
#define SLAB 256  // of K
#define ROWS 128  // of weights a block
#define BLOCKS_OF (NVFP4 ? 16 : 8)  // scales of a row and slab
#define CODE_BYTES (ROWS * SLAB / 2)
#define SCALE_BYTES (ROWS * BLOCKS_OF)
#define STAGE_BYTES (CODE_BYTES + SCALE_BYTES + TOKENS * SLAB * 2)
#define N_TILES (TOKENS / 8)

// Rows of 128 bytes, each with its 16-byte chunks permuted: 8 rows of a chunk lie in 8 different bank groups.
DEVICE int code_at(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }
// Rows of 512 bytes; those of odd rows swapped by 64 bytes.
DEVICE int x_at(int row, int chunk) { return row * 512 + ((chunk ^ ((row & 1) << 2)) << 4); }

// d = a b, from a zero accumulator.
DEVICE void mma_fresh(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// Two E2M1 codes, at bits 12..15 and 28..31, to two bf16. Exponent and mantissa put in a bf16's place make 2^-126 times the value (the
// subnormal too), so one exact product does it.
DEVICE u32 value_pair(u32 v) {
    u32 bits = (v & 0x80008000u) | ((v >> 6) & 0x01c001c0u), d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(bits), "r"(0x7e807e80u), "r"(0x80008000u));
    return d;
}

DEVICE float scale_of(u32 byte) {
#if NVFP4
    u32 two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((unsigned short)byte));
    float f;
    asm("{.reg .f16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, lo;}" : "=f"(f) : "r"(two));
    return f;
#else
    return __uint_as_float(byte == 0 ? 0x00400000u : byte == 255 ? 0x7fc00000u : byte << 23);
#endif
}

// Grid: experts. Lists an expert's slots in ascending order.
extern "C" __global__ void __launch_bounds__(256) moe_group(MoeArgs a) {
    __shared__ int warps[8];
    const int expert = blockIdx.x, slots = a.tokens * a.picks, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int* list = a.list + (long long)expert * slots;
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
    if (threadIdx.x == 0) room[8] = -1;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += room[w];
    before -= mine;
    if (tile >= before && tile < before + mine) {
        for (int i = 0; i < each; i++) {
            int e = threadIdx.x * each + i;
            if (e >= a.experts) break;
            int tiles = (a.count[e] + TOKENS - 1) / TOKENS;
            if (tile < before + tiles) {
                room[8] = e;
                room[9] = (tile - before) * TOKENS;
                break;
            }
            before += tiles;
        }
    }
    __syncthreads();
    expert = room[8];
    first = room[9];
    return expert >= 0;
}

// UP: 64 rows of gate and the same 64 of up; else 128 rows of down.
template <bool UP>
DEVICE void load_slab(const MoeArgs& a, char* stage, const int* slots, int expert, int row0, int slab) {
    const int k = UP ? a.width : a.inner, rows = UP ? a.inner : a.width;
#pragma unroll
    for (int i = 0; i < ROWS * 8 / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS, r = at >> 3, chunk = at & 7;
        const int matrix = UP ? r >> 6 : 2, row = row0 + (UP ? r & 63 : r);
        const long long from = ((long long)expert * rows + row) * (k / 2) + slab * (SLAB / 2) + chunk * 16;
        cp_async(stage + code_at(r, chunk), a.codes[matrix] + (row < rows ? from : 0), row < rows);
    }
    char* scales = stage + CODE_BYTES;
    if (threadIdx.x < ROWS) {
        const int r = threadIdx.x, matrix = UP ? r >> 6 : 2, row = row0 + (UP ? r & 63 : r);
        const long long per_row = k / SLAB * BLOCKS_OF;
        const u8* from = a.scales[matrix] + (row < rows ? ((long long)expert * rows + row) * per_row + slab * BLOCKS_OF : 0);
        u32 to = (u32)__cvta_generic_to_shared(scales + r * BLOCKS_OF);
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BLOCKS_OF), "r"(row < rows ? BLOCKS_OF : 0));
    }
    char* x = scales + SCALE_BYTES;
#pragma unroll
    for (int i = 0; i < TOKENS * 32 / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS, token = at >> 5, chunk = at & 31, slot = slots[token];
        const bf16* row = UP ? a.x + (long long)(slot < 0 ? 0 : slot / a.picks) * k : a.act + (long long)(slot < 0 ? 0 : slot) * k;
        cp_async(x + x_at(token, chunk), row + slab * SLAB + chunk * 8, slot >= 0);
    }
}

// total += the products of one slab. A warp has 16 rows and all tokens.
DEVICE void multiply(const char* stage, float (&total)[N_TILES][4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const char* scales = stage + CODE_BYTES;
    const char* x = scales + SCALE_BYTES;
    // Four scales of a row at a time: 128 of K, or 64.
#pragma unroll 1
    for (int four = 0; four < BLOCKS_OF / 4; four++) {
        u32 scale[2];
#pragma unroll
        for (int r = 0; r < 2; r++) scale[r] = *(const u32*)(scales + (warp * 16 + r * 8 + g) * BLOCKS_OF + four * 4);
#pragma unroll(TOKENS > 8 ? 1 : 2)
        for (int part = 0; part < (NVFP4 ? 2 : 4); part++) {
            const int block = four * (NVFP4 ? 2 : 4) + part;  // of 32 of K
            u32 w[2][4];                                      // [step of 16]
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const char* row = stage + code_at(warp * 16 + r * 8 + g, block);
#if NVFP4
                // Codes 4t..4t+3 of each half: pairs (0,2), (1,3).
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const u32 both = __byte_perm(*(const unsigned short*)(row + s * 8 + t * 2), 0, 0x1100);
                    w[s][r] = value_pair(both << 4);
                    w[s][r + 2] = value_pair(both);
                }
#else
                // Codes 8t..8t+7: pairs (0,4), (1,5), then (2,6), (3,7).
                const u32 eight = *(const u32*)(row + t * 4);
                w[0][r] = value_pair(eight << 12);
                w[0][r + 2] = value_pair(eight << 8);
                w[1][r] = value_pair(eight << 4);
                w[1][r + 2] = value_pair(eight);
#endif
            }
            float f[2][2];
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int s = 0; s < 1 + NVFP4; s++) f[r][s] = scale_of(scale[r] >> ((part * (1 + NVFP4) + s) * 8) & 255);
#pragma unroll
            for (int n = 0; n < N_TILES; n++) {
                u32 b[2][2];
#if NVFP4
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const uint2 v = *(const uint2*)(x + x_at(n * 8 + g, block * 4 + s * 2 + (t >> 1)) + (t & 1) * 8);
                    b[s][0] = __byte_perm(v.x, v.y, 0x5410);
                    b[s][1] = __byte_perm(v.x, v.y, 0x7632);
                }
#else
                const uint4 v = *(const uint4*)(x + x_at(n * 8 + g, block * 4 + t));
                b[0][0] = __byte_perm(v.x, v.z, 0x5410);
                b[0][1] = __byte_perm(v.x, v.z, 0x7632);
                b[1][0] = __byte_perm(v.y, v.w, 0x5410);
                b[1][1] = __byte_perm(v.y, v.w, 0x7632);
#endif
                float d[4];
                mma_fresh(d, w[0], b[0][0], b[0][1]);
#if NVFP4
#pragma unroll
                for (int i = 0; i < 4; i++) total[n][i] = fmaf(d[i], f[i >> 1][0], total[n][i]);
                mma_fresh(d, w[1], b[1][0], b[1][1]);
#else
                mma(d, w[1][0], w[1][1], w[1][2], w[1][3], b[1][0], b[1][1]);
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) total[n][i] = fmaf(d[i], f[i >> 1][NVFP4], total[n][i]);
            }
        }
    }
}

template <bool UP>
DEVICE bool run_tile(const MoeArgs& a, char* shared, int* slots, int* room, int row0, int& expert, float (&total)[N_TILES][4]) {
    int first;
    wait_for_previous();
    let_next();
    if (!find_tile(a, blockIdx.x, room, expert, first)) return false;
    const int all = a.tokens * a.picks;
    if (threadIdx.x < TOKENS) {
        const int at = first + threadIdx.x;
        slots[threadIdx.x] = at < a.count[expert] ? a.list[(long long)expert * all + at] : -1;
    }
    __syncthreads();
    const int slabs = (UP ? a.width : a.inner) / SLAB;
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
        multiply(shared + stage * STAGE_BYTES, total);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_wait<0>();
    __syncthreads();
    return true;
}

DEVICE bf16 to_bf16(float v) { return (bf16)pack_bf16(v, 0.0f); }

// Grid: (tiles of tokens, inner / 64). Warps 0..3 hold gate, warps 4..7 the same rows of up.
extern "C" __global__ void __launch_bounds__(THREADS, LEAST) moe_up(MoeArgs a) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int slots[TOKENS], room[10];
    float total[N_TILES][4] = {};
    const int row0 = blockIdx.y * 64;
    int expert;
    if (!run_tile<true>(a, shared, slots, room, row0, expert, total)) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    float* ups = (float*)shared + (threadIdx.x & 127);  // [N_TILES * 4][128]
    if (warp >= 4)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) ups[(n * 4 + i) * 128] = total[n][i];
    __syncthreads();
    if (warp >= 4) return;
#if NVFP4
    const float gate_scale = a.global[0][expert], up_scale = a.global[1][expert];
#endif
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int slot = slots[n * 8 + t * 2 + (i & 1)], row = row0 + warp * 16 + g + (i >> 1) * 8;
            if (slot < 0 || row >= a.inner) continue;
            float gate = total[n][i], up = ups[(n * 4 + i) * 128];
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

// Grid: (tiles of tokens, width / 128).
extern "C" __global__ void __launch_bounds__(THREADS, LEAST) moe_down(MoeArgs a) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int slots[TOKENS], room[10];
    float total[N_TILES][4] = {};
    const int row0 = blockIdx.y * 128;
    int expert;
    if (!run_tile<false>(a, shared, slots, room, row0, expert, total)) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
#if NVFP4
    const float scale = a.global[2][expert];
#endif
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int slot = slots[n * 8 + t * 2 + (i & 1)], row = row0 + warp * 16 + g + (i >> 1) * 8;
            if (slot < 0 || row >= a.width) continue;
            float v = total[n][i];
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
