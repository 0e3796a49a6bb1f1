// Exact-split bf16 GEMM: c[m,n] = sum over k of a[m,k] w[n,k], a f32, w bf16 (dequantised FP4 and FP8 weights are exact in bf16).
//
// a is the exact sum of three bf16 terms (24 bits = 3 x 8), so three bf16 products are the products of an f32 FMA. What
// remains is the sum: the tensor-core accumulator, which truncates, is emptied into f32 registers every PROMOTE of K.
//
// TERMS 1..3, STAGES, STEP (of K a stage: 32 or 64): set by kernels.toml. 256 threads, 128 x 128 outputs a block, K a multiple of 8.
#include "ptx.cuh"

struct GemmArgs {
    const float* a;  // [m, k]
    bf16* terms;     // [TERMS, m, k], largest first: written by `split_terms`
    const bf16* w;   // [n, k]
    float* c;        // [m, n]
    int m, n, k;
};

#define BLOCK 128
#define CHUNKS (STEP / 8)  // of 16 bytes, in a row
#define PROMOTE 64
#define OPERAND (BLOCK * STEP * 2)
#define STAGE_BYTES ((TERMS + 1) * OPERAND)
#define BAND 8  // blocks of rows that share their columns of w in the L2 cache

// Rows of 64 bytes: two make up all 32 banks; the chunks of every second pair lie permuted. Rows of 128: each one's do.
DEVICE int swizzled(int row, int chunk) {
    return row * (STEP * 2) + ((chunk ^ (STEP == 32 ? (row >> 1) & 3 : row & 7)) << 4);
}

DEVICE void load_operand(char* to, const bf16* from, int first, int rows, int k, int k0) {
#pragma unroll
    for (int i = 0; i < BLOCK * CHUNKS / 256; i++) {
        int at = threadIdx.x + i * 256, row = at / CHUNKS, chunk = at % CHUNKS;
        bool valid = first + row < rows && k0 + chunk * 8 < k;
        cp_async(to + swizzled(row, chunk), from + (valid ? (long long)(first + row) * k + k0 + chunk * 8 : 0), valid);
    }
}

DEVICE void load_step(const GemmArgs& g, char* stage, int m0, int n0, int k0) {
#pragma unroll
    for (int term = 0; term < TERMS; term++)
        load_operand(stage + term * OPERAND, g.terms + (long long)term * g.m * g.k, m0, g.m, g.k, k0);
    load_operand(stage + TERMS * OPERAND, g.w, n0, g.n, g.k, k0);
}

// Four values a thread.
extern "C" __global__ void __launch_bounds__(256) split_terms(GemmArgs g) {
    long long all = (long long)g.m * g.k, at = ((long long)blockIdx.x * 256 + threadIdx.x) * 4;
    if (at >= all) return;
    let_next();
    float4 v = *(const float4*)(g.a + at);
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        uint2 r = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
        *(uint2*)(g.terms + term * all + at) = r;
        v.x -= low_bf16(r.x);
        v.y -= high_bf16(r.x);
        v.z -= low_bf16(r.y);
        v.w -= high_bf16(r.y);
    }
}

// Grid: row blocks * column blocks.
extern "C" __global__ void __launch_bounds__(256, 1) split_gemm(GemmArgs g) {
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // 32 x 64 outputs a warp: rows cost three reads of shared memory, columns one.
    const int wm = (warp & 3) * 32, wn = (warp >> 2) * 64;
    const int row_blocks = (g.m + BLOCK - 1) / BLOCK, column_blocks = (g.n + BLOCK - 1) / BLOCK;
    const int band = blockIdx.x / (BAND * column_blocks), in_band = blockIdx.x % (BAND * column_blocks);
    const int height = min(BAND, row_blocks - band * BAND);
    const int m0 = (band * BAND + in_band % height) * BLOCK, n0 = in_band / height * BLOCK;
    const int steps = (g.k + STEP - 1) / STEP;

    wait_for_previous();
    float total[2][8][4] = {}, sum[2][8][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load_step(g, shared + s * STAGE_BYTES, m0, n0, s * STEP);
        cp_commit();
    }
    int stage = 0, next = STAGES - 1;
    for (int step = 0; step < steps; step++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) load_step(g, shared + next * STAGE_BYTES, m0, n0, (step + STAGES - 1) * STEP);
        cp_commit();
        const char* in = shared + stage * STAGE_BYTES;
        const char* w = in + TERMS * OPERAND;
#pragma unroll
        for (int half = 0; half < STEP / 16; half++) {
            u32 y[4][4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                ldmatrix(y[n], w + swizzled(wn + n * 16 + (lane & 7) + ((lane >> 4) << 3), half * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int term = TERMS - 1; term >= 0; term--)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    u32 x[4];
                    ldmatrix(x, in + term * OPERAND + swizzled(wm + r * 16 + (lane & 15), half * 2 + (lane >> 4)));
#pragma unroll
                    for (int n = 0; n < 8; n++)
                        mma(sum[r][n], x[0], x[1], x[2], x[3], y[n >> 1][(n & 1) * 2], y[n >> 1][(n & 1) * 2 + 1]);
                }
        }
        if (step % (PROMOTE / STEP) == PROMOTE / STEP - 1 || step + 1 == steps) {
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int n = 0; n < 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        total[r][n][i] += sum[r][n][i];
                        sum[r][n][i] = 0.0f;
                    }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int m = m0 + wm + r * 16 + (lane >> 2) + i * 8;
            if (m >= g.m) continue;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                int column = n0 + wn + n * 8 + (lane & 3) * 2;
                float* to = g.c + (long long)m * g.n + column;
                if (column + 1 < g.n && (g.n & 1) == 0) *(float2*)to = make_float2(total[r][n][i * 2], total[r][n][i * 2 + 1]);
                else if (column < g.n) {
                    to[0] = total[r][n][i * 2];
                    if (column + 1 < g.n) to[1] = total[r][n][i * 2 + 1];
                }
            }
        }
}
