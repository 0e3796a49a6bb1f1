// Golden's linears, four outputs of four rows a thread: each output is the sum of golden_linear, in its order. Neighbours read the
// same rows and panels at the same time, which the first cache serves.
#include "golden.cuh"

#define TILE 4
// A block of 128 threads: 32 rows and 64 outputs.
#define BLOCK_ROWS 32
#define BLOCK_OUTPUTS 64
#define BLOCK_THREADS 128

__device__ __forceinline__ float of(const float4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Chains from +0.0 over inputs first to end, in ascending order; both are multiples of four.
__device__ __forceinline__ void chains(float sum[TILE][TILE], const float* const x[TILE], const float* w, long long first, long long end) {
#pragma unroll
    for (int r = 0; r < TILE; ++r) {
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            sum[r][c] = 0.0f;
        }
    }
#pragma unroll 2
    for (long long k = first; k < end; k += 4) {
        float4 xs[TILE], ws[4];
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
            xs[r] = *(const float4*)(x[r] + k);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            ws[j] = *(const float4*)(w + (k + j) * LANES);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int r = 0; r < TILE; ++r) {
#pragma unroll
                for (int c = 0; c < TILE; ++c) {
                    sum[r][c] = __fmaf_rn(of(xs[r], j), of(ws[j], c), sum[r][c]);
                }
            }
        }
    }
}

// y[s,n] = x[s,:] . w[n,:]. p: x [S,k], w in panels [ceil(n/16)][k][16], y [S,n]; n: S, n, k, which is a multiple of four.
extern "C" __global__ void golden_linear_tiled(const Args a) {
    const long long i = thread_index(), rows = a.n[0], outputs = a.n[1], k = a.n[2];
    // Blocks of the same outputs are neighbours: their panels come once from memory.
    const long long row_blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS, block = i / BLOCK_THREADS;
    const int within = (int)(i % BLOCK_THREADS), warp = within / 32, lane = within % 32;
    const long long s = block % row_blocks * BLOCK_ROWS + warp / 2 * 16 + lane / 8 * TILE;
    const long long o = block / row_blocks * BLOCK_OUTPUTS + warp % 2 * 32 + lane % 8 * TILE;
    if (s >= rows || o >= outputs) {
        return;
    }
    // A panel has all of its 16 outputs, so only rows can be missing: the first stands for them and is not written.
    const float* x[TILE];
#pragma unroll
    for (int r = 0; r < TILE; ++r) {
        x[r] = f32s(a, 0) + (s + r < rows ? s + r : s) * k;
    }
    const float* w = f32s(a, 1) + o / LANES * k * LANES + o % LANES;
    float sum[TILE][TILE], y[TILE][TILE];
    if (k <= 2 * K_BLOCK) {
        chains(y, x, w, 0, k < K_BLOCK ? k : K_BLOCK);
        if (k > K_BLOCK) {
            chains(sum, x, w, K_BLOCK, k);
#pragma unroll
            for (int r = 0; r < TILE; ++r) {
#pragma unroll
                for (int c = 0; c < TILE; ++c) {
                    y[r][c] = y[r][c] + sum[r][c];
                }
            }
        }
    } else {
        double total[TILE][TILE];
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
#pragma unroll
            for (int c = 0; c < TILE; ++c) {
                total[r][c] = 0.0;
            }
        }
        for (long long first = 0; first < k; first += K_BLOCK) {
            chains(sum, x, w, first, k - first < K_BLOCK ? k : first + K_BLOCK);
#pragma unroll
            for (int r = 0; r < TILE; ++r) {
#pragma unroll
                for (int c = 0; c < TILE; ++c) {
                    total[r][c] += (double)sum[r][c];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
#pragma unroll
            for (int c = 0; c < TILE; ++c) {
                y[r][c] = (float)total[r][c];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < TILE; ++r) {
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (s + r < rows && o + c < outputs) {
                out32(a, 2)[(s + r) * outputs + o + c] = y[r][c];
            }
        }
    }
}
