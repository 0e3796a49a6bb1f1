// K5, compressor (spec 2.7): projections of bf16 rows with bf16 weights into f32 rows (every product exact, sums f32, emptied out of the tensor
// core every 64 of K), then each complete window's softmax pooling per channel, RMSNorm and rope.
//
// Rows lie in a buffer that begins at token `base`: what a chunk of a prompt or a decode step leaves behind is read by the next one,
// so a window may be pooled from rows of several calls, and chunks change no bit. Pooling is f32 in order of slots.
//
// STORE_BF16 (rows kept in f32 or rounded to bf16), STAGES: set by kernels.toml.
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

#define BLOCK 128
#define STEP 64  // of K: 128 bytes a row
#define OPERAND (BLOCK * STEP * 2)
#define STAGE_BYTES (2 * OPERAND)
#define BAND 8  // blocks of rows that share their columns of w in the L2 cache

DEVICE int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

DEVICE void load_operand(char* to, const bf16* from, int first, int rows, int k, int k0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = threadIdx.x + i * 256, row = at >> 3, chunk = at & 7;
        bool valid = first + row < rows && k0 + chunk * 8 < k;
        cp_async(to + swizzled(row, chunk), from + (valid ? (long long)(first + row) * k + k0 + chunk * 8 : 0), valid);
    }
}

// Grid: row blocks * column blocks; 128 x 128 outputs a block.
extern "C" __global__ void __launch_bounds__(256, 1) compress_project(CompressArgs a) {
    extern __shared__ __align__(128) char shared[];
    let_next();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = (warp & 3) * 32, wn = (warp >> 2) * 64;
    const int outputs = 2 * a.columns;
    const int row_blocks = (a.tokens + BLOCK - 1) / BLOCK, column_blocks = (outputs + BLOCK - 1) / BLOCK;
    const int band = blockIdx.x / (BAND * column_blocks), in_band = blockIdx.x % (BAND * column_blocks);
    const int height = min(BAND, row_blocks - band * BAND);
    const int m0 = (band * BAND + in_band % height) * BLOCK, n0 = in_band / height * BLOCK;
    const int steps = (a.width + STEP - 1) / STEP;
    float total[2][8][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            load_operand(shared + s * STAGE_BYTES, a.x, m0, a.tokens, a.width, s * STEP);
            load_operand(shared + s * STAGE_BYTES + OPERAND, a.w, n0, outputs, a.width, s * STEP);
        }
        cp_commit();
    }
    int stage = 0, next = STAGES - 1;
    for (int step = 0; step < steps; step++) {
        cp_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) {
            load_operand(shared + next * STAGE_BYTES, a.x, m0, a.tokens, a.width, (step + STAGES - 1) * STEP);
            load_operand(shared + next * STAGE_BYTES + OPERAND, a.w, n0, outputs, a.width, (step + STAGES - 1) * STEP);
        }
        cp_commit();
        const char* x = shared + stage * STAGE_BYTES;
        const char* w = x + OPERAND;
        float sum[2][8][4] = {};
#pragma unroll
        for (int part = 0; part < 4; part++) {
            u32 left[2][4];
#pragma unroll
            for (int r = 0; r < 2; r++)
                ldmatrix(left[r], x + swizzled(wm + r * 16 + (lane & 15), part * 2 + (lane >> 4)));
#pragma unroll
            for (int n = 0; n < 4; n++) {
                u32 right[4];
                ldmatrix(right, w + swizzled(wn + n * 16 + (lane & 7) + ((lane >> 4) << 3), part * 2 + ((lane >> 3) & 1)));
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    mma(sum[r][n * 2], left[r][0], left[r][1], left[r][2], left[r][3], right[0], right[1]);
                    mma(sum[r][n * 2 + 1], left[r][0], left[r][1], left[r][2], left[r][3], right[2], right[3]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) total[r][n][i] += sum[r][n][i];
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_wait<0>();
    Row* to = a.rows + (long long)(a.first_token - a.base) * outputs;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int m = m0 + wm + r * 16 + (lane >> 2) + i * 8;
            if (m >= a.tokens) continue;
#pragma unroll
            for (int n = 0; n < 8; n++) {
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

// Grid: windows; a thread a channel.
extern "C" __global__ void __launch_bounds__(512) compress_pool(CompressArgs a) {
    __shared__ float room[16];
    wait_for_previous();
    const int d = threadIdx.x, lane = d & 31, warp = d >> 5, window = a.first_window + blockIdx.x;
    const int slots = a.columns > a.dims ? 2 * a.ratio : a.ratio;
    float top = -INFINITY;
    for (int i = 0; i < slots; i++) {
        long long row;
        int shift, place;
        if (!slot_at(a, window, i, row, shift, place)) continue;
        const float z = row_value(a.rows[row * 2 * a.columns + a.columns + shift + d]) + a.ape[place * a.columns + shift + d];
        top = fmaxf(top, z);
    }
    float den = 0.0f, sum = 0.0f;
    for (int i = 0; i < slots; i++) {
        long long row;
        int shift, place;
        if (!slot_at(a, window, i, row, shift, place)) continue;
        const Row* from = a.rows + row * 2 * a.columns + shift + d;
        const float e = expf(row_value(from[a.columns]) + a.ape[place * a.columns + shift + d] - top);
        den += e;
        sum = fmaf(e, row_value(from[0]), sum);
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
