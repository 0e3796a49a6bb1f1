// K5, compressor (spec 2.7): projections of bf16 rows with bf16 weights into rows (every product exact, sums f32, emptied out of the tensor
// core every 64 of K unless PROMOTE = 0), then each complete window's softmax pooling per channel, RMSNorm and rope.
//
// Rows lie in a buffer that begins at token `base`: what a chunk of a prompt or a decode step leaves behind is read by the next one,
// so a window may be pooled from rows of several calls, and chunks change no bit. Pooling is f32 in order of slots.
//
// STORE_BF16 (rows kept in f32 or rounded to bf16), PROMOTE (64; 0: sums stay in the tensor core, whose error is far below bf16's),
// MT (16-row tiles a warp), COLUMNS, WARP_COLUMNS, STAGES, LEAST (blocks at once on a multiprocessor): set by kernels.toml.
#include "ptx.cuh"

#if STORE_BF16
typedef bf16 Row;
DEVICE float row_value(Row v) { return __uint_as_float((u32)v << 16); }
#else
typedef float Row;
DEVICE float row_value(Row v) { return v; }
#endif

struct CompressArgs {
    const bf16* x;       // [tokens, width]: tokens first_token..
    const bf16* w;       // [2 columns, width]: kv, then gate
    const float* ape;    // [ratio, columns]
    const float* norm;   // [dims]
    const float* turns;  // [windows, rope / 2, 2]: cosine and sine at each window's first token
    Row* rows;           // [.., 2 columns]: kv and score of the tokens from `base` on
    float* pooled;       // [windows, dims]: the naive counterpart's
    float* scale;        // [windows]: the naive counterpart's
    bf16* entries;       // [windows, dims]
    int tokens, width, columns, dims, ratio, rope;
    int base, first_token, first_window, windows;
    float eps;
};

#define THREADS (COLUMNS / WARP_COLUMNS * 64)  // two warps one below the other
#define ROWS (MT * 32)
#define NT (WARP_COLUMNS / 8)
#define STEP 64  // of K: 128 bytes a row
#define STAGE_BYTES ((ROWS + COLUMNS) * STEP * 2)
#define BAND 8  // blocks of rows that share their columns of w in the L2 cache

DEVICE int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// Rows past the last one are that one again: nobody stores what comes of them. Past the last column there are zeros.
template <int HEIGHT>
DEVICE void load_operand(char* to, const bf16* from, int last, int k, int k0) {
    const int row = afresh(threadIdx.x) >> 3, chunk = threadIdx.x & 7;
    const bool valid = k0 + chunk * 8 < k;
    from += valid ? k0 + chunk * 8 : 0;
    to += swizzled(row, chunk);
#pragma unroll
    for (int i = 0; i < HEIGHT * 8 / THREADS; i++)
        cp_async(to + i * (THREADS / 8) * 128, from + (u32)min(row + i * (THREADS / 8), last) * (u32)k, valid);
}

// Grid: row blocks * column blocks; ROWS x COLUMNS outputs a block, MT * 16 x WARP_COLUMNS a warp.
extern "C" __global__ void __launch_bounds__(THREADS, LEAST) compress_project(CompressArgs a) {
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = (warp & 1) * MT * 16, wn = (warp >> 1) * WARP_COLUMNS;
    const int outputs = 2 * a.columns;
    const int row_blocks = (a.tokens + ROWS - 1) / ROWS, column_blocks = (outputs + COLUMNS - 1) / COLUMNS;
    const int band = blockIdx.x / (BAND * column_blocks), in_band = blockIdx.x % (BAND * column_blocks);
    const int height = min(BAND, row_blocks - band * BAND);
    const int m0 = (band * BAND + in_band % height) * ROWS, n0 = in_band / height * COLUMNS;
    const int steps = (a.width + STEP - 1) / STEP;
    wait_for_previous();
    let_next();
    const bf16* x_from = a.x + (long long)m0 * a.width;
    const bf16* w_from = a.w + (long long)n0 * a.width;
    const int last_row = a.tokens - m0 - 1, last_column = outputs - n0 - 1;
    float total[MT][NT][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            load_operand<ROWS>(shared + s * STAGE_BYTES, x_from, last_row, a.width, s * STEP);
            load_operand<COLUMNS>(shared + s * STAGE_BYTES + ROWS * 128, w_from, last_column, a.width, s * STEP);
        }
        cp_commit();
    }
    // What the next 16 of K need is read while these are multiplied.
    u32 left[2][MT][4], right[2][NT / 2][4];
#if PROMOTE
    float sum[MT][NT][4] = {};
#else
    float(&sum)[MT][NT][4] = total;
#endif
    const u32 x_at = shared_at(shared) + swizzled(wm + (lane & 15), lane >> 4);
    const u32 w_at = shared_at(shared) + ROWS * 128 + swizzled(wn + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
    const auto read = [&](int to, int stage, int k) {
#pragma unroll
        for (int r = 0; r < MT; r++) ldmatrix_at(left[to][r], ((x_at + stage * STAGE_BYTES) ^ (k << 5)) + r * 2048);
#pragma unroll
        for (int n = 0; n < NT / 2; n++) ldmatrix_at(right[to][n], ((w_at + stage * STAGE_BYTES) ^ (k << 5)) + n * 2048);
    };
    int stage = 0, next = STAGES - 1;
    cp_wait<STAGES - 2>();
    __syncthreads();
    read(0, 0, 0);
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k == 3) {
                cp_wait<STAGES - 2>();
                __syncthreads();
                stage = stage + 1 == STAGES ? 0 : stage + 1;
            }
            read((k + 1) & 1, stage, (k + 1) & 3);
            if (k == 0) {
                if (step + STAGES - 1 < steps) {
                    load_operand<ROWS>(shared + next * STAGE_BYTES, x_from, last_row, a.width, (step + STAGES - 1) * STEP);
                    load_operand<COLUMNS>(shared + next * STAGE_BYTES + ROWS * 128, w_from, last_column, a.width, (step + STAGES - 1) * STEP);
                }
                cp_commit();
                next = next + 1 == STAGES ? 0 : next + 1;
            }
#pragma unroll
            for (int r = 0; r < MT; r++)
#pragma unroll
                for (int n = 0; n < NT; n++)
                    mma(sum[r][n], left[k & 1][r][0], left[k & 1][r][1], left[k & 1][r][2], left[k & 1][r][3],
                        right[k & 1][n >> 1][(n & 1) * 2], right[k & 1][n >> 1][(n & 1) * 2 + 1]);
        }
#if PROMOTE
#pragma unroll
        for (int r = 0; r < MT; r++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    total[r][n][i] += sum[r][n][i];
                    sum[r][n][i] = 0.0f;
                }
#endif
    }
    cp_wait<0>();
    Row* to = a.rows + (long long)(a.first_token - a.base) * outputs;
#pragma unroll
    for (int r = 0; r < MT; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int m = m0 + wm + r * 16 + (lane >> 2) + i * 8;
            if (m >= a.tokens) continue;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int column = n0 + wn + n * 8 + (lane & 3) * 2;  // columns are even
                if (column >= outputs) continue;
                Row* at = to + (long long)m * outputs + column;
#if STORE_BF16
                *(u32*)at = pack_bf16(total[r][n][i * 2], total[r][n][i * 2 + 1]);
#else
                *(float2*)at = make_float2(total[r][n][i * 2], total[r][n][i * 2 + 1]);
#endif
            }
        }
}

DEVICE float stored(float v) { return low_bf16(pack_bf16(v, 0.0f)); }

// Slot `i` of a window: its row, its series and its place in ape. Two series (columns = 2 dims) pool the window before, series 0, and their
// own, series 1; a window 0 has none before it.
DEVICE bool slot_at(const CompressArgs& a, int window, int i, long long& row, int& shift, int& place) {
    const bool overlap = a.columns > a.dims;
    const int from = overlap && i < a.ratio ? window - 1 : window;
    place = i % a.ratio;
    shift = overlap && i >= a.ratio ? a.dims : 0;
    row = (long long)from * a.ratio + place - a.base;
    return from >= 0;
}

// Loads of AHEAD slots are under way at once; all of them are added in order: AHEAD changes no bit.
template <int AHEAD>
DEVICE void pool(const CompressArgs& a) {
    __shared__ float room[16];
    wait_for_previous();
    const int d = threadIdx.x, lane = d & 31, warp = d >> 5, window = a.first_window + blockIdx.x;
    const int slots = a.columns > a.dims ? 2 * a.ratio : a.ratio;
    float top = -INFINITY;
    for (int first = 0; first < slots; first += AHEAD) {
        float z[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            long long row = 0;
            int shift = 0, place = 0;
            const bool there = first + i < slots && slot_at(a, window, first + i, row, shift, place);
            z[i] = -INFINITY;
            if (there) z[i] = row_value(a.rows[row * 2 * a.columns + a.columns + shift + d]) + a.ape[place * a.columns + shift + d];
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) top = fmaxf(top, z[i]);
    }
    float den = 0.0f, sum = 0.0f;
    for (int first = 0; first < slots; first += AHEAD) {
        float z[AHEAD], value[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            long long row = 0;
            int shift = 0, place = 0;
            const bool there = first + i < slots && slot_at(a, window, first + i, row, shift, place);
            z[i] = -INFINITY;
            value[i] = 0.0f;
            if (there) {
                const Row* from = a.rows + row * 2 * a.columns + shift + d;
                z[i] = row_value(from[a.columns]) + a.ape[place * a.columns + shift + d];
                value[i] = row_value(from[0]);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const float e = expf(z[i] - top);  // of a slot that isn't there 0
            den += e;
            sum = fmaf(e, value[i], sum);
        }
    }
    float v = stored(sum / den);
    float square = v * v;
#pragma unroll
    for (int i = 16; i > 0; i >>= 1) square += __shfl_xor_sync(0xffffffffu, square, i);
    if (lane == 0) room[warp] = square;
    __syncthreads();
    float all = 0.0f;
    for (int w = 0; w < a.dims / 32; w++) all += room[w];
    v = stored(a.norm[d] * (v * (1.0f / sqrtf(all / (float)a.dims + a.eps))));
    const float other = __shfl_xor_sync(0xffffffffu, v, 1);
    const int pair = (d - (a.dims - a.rope)) >> 1;
    if (pair >= 0) {
        const float c = a.turns[((long long)blockIdx.x * (a.rope / 2) + pair) * 2], s = a.turns[((long long)blockIdx.x * (a.rope / 2) + pair) * 2 + 1];
        v = d & 1 ? fmaf(other, s, v * c) : fmaf(v, c, -other * s);
    }
    a.entries[(long long)blockIdx.x * a.dims + d] = (bf16)pack_bf16(v, 0.0f);
}

// Grid of both: windows; a thread a channel. Many blocks at once for windows of a few slots, many loads for those of many.
extern "C" __global__ void __launch_bounds__(512, __CUDA_ARCH__ >= 1200 ? 1 : 4) compress_pool(CompressArgs a) { pool<8>(a); }

extern "C" __global__ void __launch_bounds__(512, 1) compress_pool_wide(CompressArgs a) { pool<16>(a); }
