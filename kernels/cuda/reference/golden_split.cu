// Golden's second tier: products y = x w^T whose weight is exact in bf16, on the tensor cores. x is the exact sum of three bf16
// terms, so the products are those of an f32 multiplication; only their sum is not golden's chain. A tensor core truncates what
// it adds, so it adds no more than 64 of K (STEP), the smallest terms first, and what it leaves is added up as a pair of f32.
// docs/kernels.md derives the bound. What this can't take (rows whose terms aren't exact, sums that overflow) is computed by
// golden's own `dot`. An output depends on its row of x and its row of w alone: not on S, n or where its block lies.
#include "golden.cuh"

#define STEP 64        // of K between two emptyings of the tensor core's sums, and in shared memory at once
#define TERMS 3        // 3 x 8 bits make up the 24 of an f32
#define ROWS 64        // outputs of a block, down
#define COLUMNS 128    // and across
#define WARP_ROWS 32   // outputs of a warp
#define WARP_COLUMNS 32
#define BAND 16        // blocks of rows that share their columns of w in the L2 cache

__device__ __forceinline__ unsigned bits_of(float v) {
    union {
        float value;
        unsigned bits;
    } it;
    it.value = v;
    return it.bits;
}

__device__ __forceinline__ bool is_finite(unsigned bits) {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

// Whether a tensor core takes this f32, whose lower half is zero, as it is: a number, and no subnormal.
__device__ __forceinline__ bool is_plain(unsigned bits) {
    return is_finite(bits) && ((bits & 0x7f800000u) != 0u || (bits & 0x7fffffffu) == 0u);
}

// bf16 rows of a weight, and how many values of every 64 of a row aren't exact in it. p: w in panels [ceil(n/16)][k][16],
// rows [n,k] bf16, counts [n][ceil(k/64)] u8; n: n, k (even). Sixteen rows times ceil(k/64) threads a panel.
extern "C" __global__ void golden_split_narrow(const Args a) {
    const long long i = thread_index(), k = a.n[1], chunks = (k + STEP - 1) / STEP;
    const long long panel = i / (LANES * chunks), chunk = i / LANES % chunks, row = panel * LANES + i % LANES;
    if (row >= a.n[0]) {
        return;
    }
    const unsigned* from = u32s(a, 0) + panel * k * LANES + i % LANES;
    unsigned* to = (unsigned*)a.p[1] + row * k / 2;
    unsigned lost = 0;
    for (long long at = chunk * STEP; at < k && at < (chunk + 1) * STEP; at += 2) {
        const unsigned low = from[at * LANES], high = from[(at + 1) * LANES];
        lost += (low & 0xffffu) == 0u && is_plain(low) ? 0 : 1;
        lost += (high & 0xffffu) == 0u && is_plain(high) ? 0 : 1;
        to[at / 2] = low >> 16 | (high & 0xffff0000u);
    }
    ((unsigned char*)a.p[2])[row * chunks + chunk] = (unsigned char)lost;
}

// Values of each row that aren't exact in bf16. p: counts [n][chunks] u8, sums [n] u32; n: n, chunks.
extern "C" __global__ void golden_split_count(const Args a) {
    const long long row = thread_index(), chunks = a.n[1];
    if (row >= a.n[0]) {
        return;
    }
    unsigned sum = 0;
    for (long long chunk = 0; chunk < chunks; ++chunk) {
        sum += ((const unsigned char*)a.p[0])[row * chunks + chunk];
    }
    ((unsigned*)a.p[1])[row] = sum;
}

// No row is marked. p: marks [S] u32, redone [S] u32; n: S.
extern "C" __global__ void golden_split_clear(const Args a) {
    const long long row = thread_index();
    if (row < a.n[0]) {
        ((unsigned*)a.p[0])[row] = 0;
        ((unsigned*)a.p[1])[row] = 0;
    }
}

// x as three bf16 terms, largest first; a row with a value that they don't make up is marked (whoever marks it writes the same).
// p: x [S,k], terms [3][S][k] bf16, marks [S] u32; n: S, k (even). Two values a thread.
extern "C" __global__ void golden_split_terms(const Args a) {
    const long long all = a.n[0] * a.n[1], at = thread_index() * 2;
    if (at >= all) {
        return;
    }
    float rest[2] = {f32s(a, 0)[at], f32s(a, 0)[at + 1]};
    bool exact = true;
    for (int term = 0; term < TERMS; ++term) {
        unsigned pair = 0;
        for (int i = 0; i < 2; ++i) {
            // To nearest, ties to even.
            const unsigned bits = bits_of(rest[i]), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
            exact = exact && is_finite(bits) && is_plain(rounded);
            rest[i] -= __int_as_float((int)rounded);
            pair |= rounded >> (16 - 16 * i);
        }
        ((unsigned*)a.p[1])[(term * all + at) / 2] = pair;
    }
    if (!exact || rest[0] != 0.0f || rest[1] != 0.0f) {
        ((unsigned*)a.p[2])[at / a.n[1]] = 1;
    }
}

// Golden's own arithmetic for the rows that are marked and for outputs that aren't finite; which rows had any. p: x [S,k], w in
// panels, marks [S] u32, redone [S] u32, y [S,n]; n: S, n, k.
extern "C" __global__ void golden_split_rest(const Args a) {
    const long long i = thread_index(), outputs = a.n[1], k = a.n[2];
    if (i >= a.n[0] * outputs) {
        return;
    }
    const long long s = i / outputs, o = i % outputs;
    if (u32s(a, 2)[s] == 0u && is_finite(bits_of(out32(a, 4)[i]))) {
        return;
    }
    ((unsigned*)a.p[3])[s] = 1;
    out32(a, 4)[i] = dot(f32s(a, 0) + s * k, f32s(a, 1) + o / LANES * k * LANES + o % LANES, LANES, k);
}

// What follows is for a tensor core; a test emulates it.
#ifdef __CUDACC__

#define ROW_BYTES (STEP * 2)
#define TILE_ROWS (TERMS * ROWS + COLUMNS)  // the terms of x, then w
#define TILE_BYTES (TILE_ROWS * ROW_BYTES)
#define THREADS 256

__device__ __forceinline__ unsigned shared_at(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// Where 16 bytes of a row lie: eight rows of 128 bytes would meet in the same banks, so each has its own order.
__device__ __forceinline__ unsigned chunk_at(unsigned tile, int row, int chunk) {
    return tile + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4);
}

// Four 8x8 matrices of bf16; lane 8i+j gives the address of row j of matrix i.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// sum[16x8] += x[16x16] w[16x8]: one step of a tensor core.
__device__ __forceinline__ void add_products(float (&sum)[4], const unsigned (&x)[4], unsigned w0, unsigned w1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w0), "r"(w1));
}

// Begins to bring 64 of K into a tile; zeros for rows past the end, and for K past the end.
__device__ __forceinline__ void bring(const Args& a, unsigned tile, int m0, int n0, int k0) {
    const int s = (int)a.n[0], n = (int)a.n[1], k = (int)a.n[2];
    const int chunk = threadIdx.x % 8;
#pragma unroll 1
    for (int i = 0; i < TILE_ROWS / (THREADS / 8); ++i) {
        const int first = i * (THREADS / 8), row = first + threadIdx.x / 8;
        const bool is_x = first < TERMS * ROWS;
        const int at = is_x ? m0 + row % ROWS : n0 + row - TERMS * ROWS;
        const bool there = at < (is_x ? s : n) && k0 + chunk * 8 < k;
        const unsigned short* from = (const unsigned short*)a.p[is_x ? 0 : 1];
        from += there ? ((is_x ? (long long)(row / ROWS) * s : 0) + at) * k + k0 + chunk * 8 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(chunk_at(tile, row, chunk)), "l"(from), "r"(there ? 16 : 0));
    }
    asm volatile("cp.async.commit_group;");
}

// The products. p: terms [3][S][k] bf16, w [n,k] bf16, y [S,n]; n: S, n, k (a multiple of 8). Grid: blocks of rows times
// blocks of columns.
extern "C" __global__ void __launch_bounds__(THREADS, 2) golden_split_product(const Args a) {
    extern __shared__ __align__(128) char shared[];
    const int s = (int)a.n[0], n = (int)a.n[1], k = (int)a.n[2];
    const int row_blocks = (s + ROWS - 1) / ROWS, column_blocks = (n + COLUMNS - 1) / COLUMNS;
    const int band = blockIdx.x / (BAND * column_blocks), in_band = blockIdx.x % (BAND * column_blocks);
    const int left = row_blocks - band * BAND, height = left < BAND ? left : BAND;
    const int m0 = (band * BAND + in_band % height) * ROWS, n0 = in_band / height * COLUMNS;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int wm = warp % (ROWS / WARP_ROWS) * WARP_ROWS, wn = warp / (ROWS / WARP_ROWS) * WARP_COLUMNS;
    const unsigned tiles = shared_at(shared);

    // Lane 4g+t has outputs of rows g and g+8, columns 2t and 2t+1 of each 16x8: total + rest is their sum so far.
    float total[2][4][4] = {}, rest[2][4][4] = {};
    bring(a, tiles, m0, n0, 0);
    unsigned now = tiles, other = tiles + TILE_BYTES;
    for (int k0 = 0; k0 < k; k0 += STEP) {
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();  // this tile is whole, and nobody reads the other one any more
        if (k0 + STEP < k) {
            bring(a, other, m0, n0, k0 + STEP);
        }
        float sum[2][4][4] = {};
#pragma unroll 1
        for (int term = TERMS - 1; term >= 0; --term) {
#pragma unroll
            for (int k16 = 0; k16 < STEP / 16; ++k16) {
                unsigned w[2][4];
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int row = TERMS * ROWS + wn + j * 16 + (lane >> 4) * 8 + (lane & 7);
                    load_matrices(w[j], chunk_at(now, row, k16 * 2 + (lane >> 3 & 1)));
                }
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    unsigned x[4];
                    const int row = term * ROWS + wm + i * 16 + (lane & 15);
                    load_matrices(x, chunk_at(now, row, k16 * 2 + (lane >> 4)));
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        add_products(sum[i][j], x, w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    // The rounding error of an addition is an f32 (Knuth): nothing of it is lost.
                    const float before = total[i][j][c], more = sum[i][j][c], after = before + more;
                    const float back = after - before;
                    rest[i][j][c] += (before - (after - back)) + (more - back);
                    total[i][j][c] = after;
                }
            }
        }
        const unsigned free = now;
        now = other;
        other = free;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int row = m0 + wm + i * 16 + (lane >> 2) + c / 2 * 8;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int column = n0 + wn + j * 8 + (lane & 3) * 2 + c % 2;
                if (row < s && column < n) {
                    out32(a, 2)[(long long)row * n + column] = total[i][j][c] + rest[i][j][c];
                }
            }
        }
    }
}

#endif
