// K2, index scores of decode (spec 2.8, patch fp8-indexer): one query a sequence, 64 heads of 128 E4M3 codes, against the keys of a
// paged cache. score = (sum over heads of relu(q.k) * (weight * q's scale)) * the key's scale; f32 logits.
//
// A warp takes 32 keys at a time straight from the cache into registers; the codes of both become f16, which holds every E4M3
// value, so each product is exact. The query lies in shared memory in the order in which mma.sync wants it. Heads are summed in f32: those
// of a thread in order, then over four threads. Nothing past `visible` is read: a query's work is its context, not the
// longest context that the cache has room for (EARLY_EXIT 0: all pages are walked and masked, as eager fallbacks do).
//
// PRODUCT_BF16 (each q.k is rounded to bf16 before relu), EARLY_EXIT: set by kernels.toml. 128 threads.
#include "ptx.cuh"

struct IndexArgs {
    const unsigned char* q;     // [batch, 64, 128] E4M3
    const float* q_scale;       // [batch, 64]
    const float* weight;        // [batch, 64]
    const unsigned char* keys;  // [pages, page, 128] E4M3
    const float* key_scale;     // [pages, page]
    const int* table;           // [batch, table_pages]: pages of a sequence in order
    const int* visible;         // [batch]
    float* logits;              // [batch, table_pages * page]
    int batch, page, table_pages, pages;
};

#define THREADS 128
#define KEYS 32  // a warp at a time

// Two E4M3 codes to two f16.
DEVICE u32 wide_codes(u32 two) {
    u32 d;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"((unsigned short)two));
    return d;
}

DEVICE void mma_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Codes of 32 keys: [16-key tile][row g or g + 8][first or second half of the dims], 16 bytes each.
struct Tile {
    uint4 codes[2][2][2];
    float scale[2][2];
};

// Where a key lies, or -1: behind the visible ones, or on a page that the cache doesn't have.
DEVICE long long slot_of(const IndexArgs& a, int sequence, int key, int visible) {
    if (key >= visible) return -1;
    int page = a.table[(long long)sequence * a.table_pages + key / a.page];
    return page < 0 || page >= a.pages ? -1 : (long long)page * a.page + key % a.page;
}

DEVICE void load(const IndexArgs& a, Tile& tile, int sequence, int first, int visible) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            long long slot = slot_of(a, sequence, first + m * 16 + r * 8 + g, visible);
            const uint4* from = (const uint4*)(a.keys + (slot < 0 ? 0 : slot) * 128) + t;
            tile.codes[m][r][0] = slot < 0 ? make_uint4(0, 0, 0, 0) : from[0];
            tile.codes[m][r][1] = slot < 0 ? make_uint4(0, 0, 0, 0) : from[4];
            tile.scale[m][r] = slot < 0 ? 0.0f : a.key_scale[slot];
        }
}

// Grid: (blocks a sequence, batch). Blocks stride over the keys, so that the grid doesn't grow with the cache.
extern "C" __global__ void __launch_bounds__(THREADS) index_logits(IndexArgs a) {
    // Steps of 16 dims, pairs of 8-head tiles, lanes: both registers of both tiles.
    __shared__ uint4 query[8][4][32];
    __shared__ float2 weights[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int sequence = blockIdx.y, room = a.table_pages * a.page;
    const int visible = min(a.visible[sequence], room);
    const int end = EARLY_EXIT ? visible : room;
    const int stride = gridDim.x * 4 * KEYS, begin = (blockIdx.x * 4 + warp) * KEYS;
    let_next();
    if (blockIdx.x * 4 * KEYS >= end) return;

    Tile tile;
    load(a, tile, sequence, begin, visible);
    // A thread of the query: head tile `warp` and `warp + 4` ... as pairs; dims of a step as the keys' bytes have them.
    for (int i = threadIdx.x; i < 8 * 4 * 32; i += THREADS) {
        const int step = i >> 7, pair = (i >> 5) & 3, l = i & 31, lg = l >> 2, lt = l & 3;
        const int dim = (step >> 2) * 64 + lt * 16 + (step & 3) * 4;
        u32 r[4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            u32 four = *(const u32*)(a.q + ((long long)sequence * 64 + (pair * 2 + n) * 8 + lg) * 128 + dim);
            r[n * 2] = wide_codes(four);
            r[n * 2 + 1] = wide_codes(four >> 16);
        }
        query[step][pair][l] = make_uint4(r[0], r[1], r[2], r[3]);
    }
    if (threadIdx.x < 32) {
        const long long at = (long long)sequence * 64 + threadIdx.x * 2;
        weights[threadIdx.x] = make_float2(a.weight[at] * a.q_scale[at], a.weight[at + 1] * a.q_scale[at + 1]);
    }
    __syncthreads();

    for (int first = begin; first < end; first += stride) {
        u32 k[2][8][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 low = tile.codes[m][0][half], high = tile.codes[m][1][half];
                const u32 l4[4] = {low.x, low.y, low.z, low.w}, h4[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    k[m][half * 4 + s][0] = wide_codes(l4[s]);
                    k[m][half * 4 + s][1] = wide_codes(h4[s]);
                    k[m][half * 4 + s][2] = wide_codes(l4[s] >> 16);
                    k[m][half * 4 + s][3] = wide_codes(h4[s] >> 16);
                }
            }
        float scale[2][2];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) scale[m][r] = tile.scale[m][r];
        if (first + stride < end) load(a, tile, sequence, first + stride, visible);
        float sum[2][2] = {};
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            float d[2][2][4] = {};
#pragma unroll
            for (int step = 0; step < 8; step++) {
                const uint4 q = query[step][pair][lane];
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma_f16(d[m][0], k[m][step][0], k[m][step][1], k[m][step][2], k[m][step][3], q.x, q.y);
                    mma_f16(d[m][1], k[m][step][0], k[m][step][1], k[m][step][2], k[m][step][3], q.z, q.w);
                }
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float2 w = weights[(pair * 2 + n) * 4 + t];
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        float p0 = d[m][n][r * 2], p1 = d[m][n][r * 2 + 1];
#if PRODUCT_BF16
                        const u32 both = pack_bf16(p0, p1);
                        p0 = low_bf16(both);
                        p1 = high_bf16(both);
#endif
                        // Not fmaxf: a NaN stays one.
                        p0 = p0 < 0.0f ? 0.0f : p0;
                        p1 = p1 < 0.0f ? 0.0f : p1;
                        sum[m][r] = fmaf(p1, w.y, fmaf(p0, w.x, sum[m][r]));
                    }
            }
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float s = sum[m][r];
                s += __shfl_xor_sync(0xffffffffu, s, 1);
                s += __shfl_xor_sync(0xffffffffu, s, 2);
                const int key = first + m * 16 + r * 8 + g;
                if (t == 0 && key < end) a.logits[(long long)sequence * room + key] = key < visible ? s * scale[m][r] : -INFINITY;
            }
    }
}
