// Exact-split bf16 GEMM: c[m,n] = sum over k of a[m,k] w[n,k], a f32, w bf16 (dequantised FP4 and FP8 weights are exact in bf16).
//
// a is the exact sum of three bf16 terms (24 bits = 3 x 8), so three bf16 products are the products of an f32 FMA. What
// remains is the sum: the tensor-core accumulator, which truncates, is emptied into f32 registers every PROMOTE of K.
//
// TERMS 1..3, ROWS (128 or 64) by 128 outputs a block, STAGES, STEP (of K a stage: 32 or 64), LEAST (blocks at once on a
// multiprocessor): set by kernels.toml. 256 threads, K a multiple of 8.
#include "ptx.cuh"

struct GemmArgs {
    const float* a;  // [m, k]
    bf16* terms;     // [TERMS, m, k], largest first: written by `split_terms`
    const bf16* w;   // [n, k]
    float* c;        // [m, n]
    int m, n, k;
};

#define COLUMNS 128
#define DOWN (ROWS / 32)           // warps one below the other, 32 rows each
#define NT (COLUMNS * DOWN / 64)   // 8-column tiles a warp
#define CHUNKS (STEP / 8)  // of 16 bytes, in a row
#define PROMOTE 64
#define TERM_BYTES (ROWS * STEP * 2)
#define STAGE_BYTES ((TERMS * ROWS + COLUMNS) * STEP * 2)
#define BAND 8  // blocks of rows that share their columns of w in the L2 cache

// Rows of 64 bytes: two make up all 32 banks; the chunks of every second pair lie permuted. Rows of 128: each one's do.
DEVICE int swizzled(int row, int chunk) {
    return row * (STEP * 2) + ((chunk ^ (STEP == 32 ? (row >> 1) & 3 : row & 7)) << 4);
}

template <int HEIGHT>
DEVICE void load_operand(char* to, const bf16* from, int first, int rows, int k, int k0) {
#pragma unroll
    for (int i = 0; i < HEIGHT * CHUNKS / 256; i++) {
        int at = threadIdx.x + i * 256, row = at / CHUNKS, chunk = at % CHUNKS;
        bool valid = first + row < rows && k0 + chunk * 8 < k;
        cp_async(to + swizzled(row, chunk), from + (valid ? (long long)(first + row) * k + k0 + chunk * 8 : 0), valid);
    }
}

DEVICE void load_step(const GemmArgs& g, char* stage, int m0, int n0, int k0) {
#pragma unroll
    for (int term = 0; term < TERMS; term++)
        load_operand<ROWS>(stage + term * TERM_BYTES, g.terms + (long long)term * g.m * g.k, m0, g.m, g.k, k0);
    load_operand<COLUMNS>(stage + TERMS * TERM_BYTES, g.w, n0, g.n, g.k, k0);
}

// Four values a thread.
extern "C" __global__ void __launch_bounds__(256) split_terms(GemmArgs g) {
    long long all = (long long)g.m * g.k, at = ((long long)blockIdx.x * 256 + threadIdx.x) * 4;
    wait_for_previous();
    let_next();
    if (at >= all) return;
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
extern "C" __global__ void __launch_bounds__(256, LEAST) split_gemm(GemmArgs g) {
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // 32 x 64 (or 32 x 32) outputs a warp: rows cost three reads of shared memory, columns one.
    const int wm = warp % DOWN * 32, wn = warp / DOWN * NT * 8;
    const int row_blocks = (g.m + ROWS - 1) / ROWS, column_blocks = (g.n + COLUMNS - 1) / COLUMNS;
    const int band = blockIdx.x / (BAND * column_blocks), in_band = blockIdx.x % (BAND * column_blocks);
    const int height = min(BAND, row_blocks - band * BAND);
    const int m0 = (band * BAND + in_band % height) * ROWS, n0 = in_band / height * COLUMNS;
    const int steps = (g.k + STEP - 1) / STEP;

    wait_for_previous();
    float total[2][NT][4] = {}, sum[2][NT][4] = {};
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
        const char* w = in + TERMS * TERM_BYTES;
#pragma unroll
        for (int half = 0; half < STEP / 16; half++) {
            u32 y[NT / 2][4];
#pragma unroll
            for (int n = 0; n < NT / 2; n++)
                ldmatrix(y[n], w + swizzled(wn + n * 16 + (lane & 7) + ((lane >> 4) << 3), half * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int term = TERMS - 1; term >= 0; term--)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    u32 x[4];
                    ldmatrix(x, in + term * TERM_BYTES + swizzled(wm + r * 16 + (lane & 15), half * 2 + (lane >> 4)));
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        mma(sum[r][n], x[0], x[1], x[2], x[3], y[n >> 1][(n & 1) * 2], y[n >> 1][(n & 1) * 2 + 1]);
                }
        }
        if (step % (PROMOTE / STEP) == PROMOTE / STEP - 1 || step + 1 == steps) {
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int n = 0; n < NT; n++)
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
            for (int n = 0; n < NT; n++) {
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
