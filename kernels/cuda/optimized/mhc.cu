// K3, mHC coefficients (spec 2.3): m = (f fn^T) rsqrt(mean f^2 + eps), f [tokens, width] bf16, fn [24, width].
//
// fn comes as TERMS bf16 terms (1: rounded once; 2: error 2^-17; 3: exact), so every product is exact and only the sums
// round. The tensor-core accumulator is emptied into f32 registers every 64 of K; so are the sums of squares, of the same pass.
// No shared row is read twice and nothing is added by atomics: each K split writes its own partial, `mhc_finish` adds them in order.
//
// A split of more than 64 slabs of K would add more than the error that this promises (3e-7 with three terms): the launcher refuses.
//
// TERMS 1..3, WARPS, ROWS (16-row tiles a warp), STAGES, BLOCKS (at once on a multiprocessor): set by kernels.toml.
#include "ptx.cuh"

struct MhcArgs {
    const bf16* x;         // [tokens, width] bf16
    const bf16* fn_terms;  // [TERMS, 24, width] bf16, largest term first
    const float* fn;       // [24, width] f32: the naive counterpart's
    const float* base;     // [24]
    const float* scale;    // [3]
    float* partial;        // [splits, tokens, 32]: 24 products, sum of squares, unused
    float* mixes;          // [tokens, 24], times rsqrt(mean square + eps)
    float* sumsq;          // [tokens]
    float* coefficients;   // [tokens, 24]: pre 4, post 4, comb 4x4 row-major after Sinkhorn
    int tokens, width, splits, iterations;
    float rms_eps, hc_eps;
};

#define SLAB 64  // of K: 128 bytes a row
#define TILE (WARPS * ROWS * 16)
#define FN_ROWS (TERMS * 24)
#define STAGE_BYTES ((TILE + FN_ROWS) * SLAB * 2)
#define THREADS (WARPS * 32)
#define AHEAD 32  // splits whose loads are under way at once

// 16-byte chunks of odd rows lie swapped by halves: a quarter warp, 2 rows by 4 chunks, then touches every bank once.
DEVICE int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ ((row & 1) << 2)) << 4); }

// A thread's chunk of its first rows of x and fn. Rows lie THREADS / 8 apart, an even number: their chunks lie alike.
struct Source {
    const bf16* x;
    const bf16* fn;
    int rows;  // of x, from this one on
};

DEVICE void load_slab(const Source& from, char* stage, int width, int slab) {
    const int row = threadIdx.x >> 3, at = swizzled(row, threadIdx.x & 7);
    const bf16* x = from.x + slab * SLAB;
    const bf16* fn = from.fn + slab * SLAB;
#pragma unroll
    for (int i = 0; i < TILE * 8 / THREADS; i++)
        cp_async(stage + at + i * (THREADS * 16), x + (u32)(i * (THREADS / 8)) * (u32)width, i * (THREADS / 8) < from.rows);
#pragma unroll
    for (int i = 0; i < (FN_ROWS * 8 + THREADS - 1) / THREADS; i++)
        if ((i + 1) * (THREADS / 8) <= FN_ROWS || row + i * (THREADS / 8) < FN_ROWS)
            cp_async(stage + TILE * 128 + at + i * (THREADS * 16), fn + (u32)(i * (THREADS / 8)) * (u32)width, true);
}

// Grid: (tokens / TILE rounded up, splits).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mhc_product(MhcArgs a) {
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    wait_for_previous();
    let_next();
    const int first_row = blockIdx.x * TILE, slabs = a.width / SLAB;
    const int begin = (int)((long long)blockIdx.y * slabs / a.splits);
    const int end = (int)((long long)(blockIdx.y + 1) * slabs / a.splits);

    float total[ROWS][3][4] = {};
    // Sums of squares: rows times themselves in the tensor core, of which the diagonal counts; lane 4g + g/2 has that of rows g and
    // g + 8. What the additions of slabs round away is kept (Kahan).
    float square[ROWS][2] = {}, lost[ROWS][2] = {};
    const int row = threadIdx.x >> 3, chunk = threadIdx.x & 7;
    const Source from = {a.x + (long long)(first_row + row) * a.width + chunk * 8,
                         a.fn_terms + (long long)row * a.width + chunk * 8, a.tokens - first_row - row};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (begin + s < end) load_slab(from, shared + s * STAGE_BYTES, a.width, begin + s);
        cp_commit();
    }
    int stage = 0, next = STAGES - 1;
    for (int slab = begin; slab < end; slab++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (slab + STAGES - 1 < end) load_slab(from, shared + next * STAGE_BYTES, a.width, slab + STAGES - 1);
        cp_commit();
        const char* x = shared + stage * STAGE_BYTES;
        const char* fn = x + TILE * 128;
        float sum[ROWS][3][4] = {}, own[ROWS][2][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // Sums don't care which 16 of K a step takes as long as both operands agree: lane t takes 8 neighbours, two steps'
            // worth, in one 16-byte read.
            uint4 low[ROWS], high[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int row = (warp * ROWS + r) * 16 + g;
                low[r] = *(const uint4*)(x + swizzled(row, half * 4 + t));
                high[r] = *(const uint4*)(x + swizzled(row + 8, half * 4 + t));
            }
#pragma unroll
            for (int term = TERMS - 1; term >= 0; term--) {
                uint4 w[3];
#pragma unroll
                for (int n = 0; n < 3; n++) w[n] = *(const uint4*)(fn + swizzled(term * 24 + n * 8 + g, half * 4 + t));
                // Both steps of an accumulator apart, so that neither waits for the other.
#pragma unroll
                for (int n = 0; n < 3; n++)
#pragma unroll
                    for (int r = 0; r < ROWS; r++) mma(sum[r][n], low[r].x, high[r].x, low[r].y, high[r].y, w[n].x, w[n].y);
#pragma unroll
                for (int n = 0; n < 3; n++)
#pragma unroll
                    for (int r = 0; r < ROWS; r++) mma(sum[r][n], low[r].z, high[r].z, low[r].w, high[r].w, w[n].z, w[n].w);
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma(own[r][0], low[r].x, high[r].x, low[r].y, high[r].y, low[r].x, low[r].y);
                mma(own[r][1], low[r].x, high[r].x, low[r].y, high[r].y, high[r].x, high[r].y);
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma(own[r][0], low[r].z, high[r].z, low[r].w, high[r].w, low[r].z, low[r].w);
                mma(own[r][1], low[r].z, high[r].z, low[r].w, high[r].w, high[r].z, high[r].w);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int n = 0; n < 3; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) total[r][n][i] += sum[r][n][i];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float more = (g & 1 ? own[r][i][i * 2 + 1] : own[r][i][i * 2]) - lost[r][i];
                const float now = square[r][i] + more;
                lost[r][i] = (now - square[r][i]) - more;
                square[r][i] = now;
            }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_wait<0>();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = first_row + (warp * ROWS + r) * 16 + g + i * 8;
            if (token < a.tokens) {
                float* out = a.partial + ((long long)blockIdx.y * a.tokens + token) * 32;
#pragma unroll
                for (int n = 0; n < 3; n++)
                    *(float2*)(out + n * 8 + 2 * t) = make_float2(total[r][n][i * 2], total[r][n][i * 2 + 1]);
                if (t == g >> 1) out[24] = square[r][i];
            }
        }
}

DEVICE float over_columns(float v) {  // sum over k of a row j: lanes 4j..4j+3
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

DEVICE float over_rows(float v) {  // sum over j of a column k: lanes k, k+4, k+8, k+12
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    return v + __shfl_xor_sync(0xffffffffu, v, 8);
}

DEVICE float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

// A warp a token, 4 tokens a block; lane c sums column c of the partials, in order of the splits. iterations = 0: no Sinkhorn,
// and `coefficients` is not written. In Sinkhorn lane 4j+k holds comb[j,k]; the upper half of the warp does the same again.
extern "C" __global__ void __launch_bounds__(128) mhc_finish(MhcArgs a) {
    const int token = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    wait_for_previous();
    let_next();
    if (token >= a.tokens) return;
    const float* in = a.partial + (long long)token * 32 + lane;
    const long long next = (long long)a.tokens * 32;
    float sum = 0.0f;
    for (int s = 0; s < a.splits; s += AHEAD) {
        float v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) v[i] = lane < 25 && s + i < a.splits ? in[(s + i) * next] : 0.0f;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) sum += v[i];
    }
    const float square = __shfl_sync(0xffffffffu, sum, 24);
    const float mix = sum * (1.0f / sqrtf(square / (float)a.width + a.rms_eps));
    if (lane < 24) a.mixes[token * 24 + lane] = mix;
    if (lane == 24) a.sumsq[token] = square;
    if (a.iterations == 0) return;
    const int at = 8 + (lane & 15);
    float v = __shfl_sync(0xffffffffu, mix, at) * a.scale[2] + a.base[at];
    float m = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    v = expf(v - m);
    v = v / over_columns(v) + a.hc_eps;
    v = v / (over_rows(v) + a.hc_eps);
    for (int i = 1; i < a.iterations; i++) {
        v = v / (over_columns(v) + a.hc_eps);
        v = v / (over_rows(v) + a.hc_eps);
    }
    float* out = a.coefficients + token * 24;
    if (lane < 16) out[at] = v;
    if (lane < 4) out[lane] = sigmoid(mix * a.scale[0] + a.base[lane]) + a.hc_eps;
    else if (lane < 8) out[lane] = 2.0f * sigmoid(mix * a.scale[1] + a.base[lane]);
}
