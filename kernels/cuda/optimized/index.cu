// K2, index scores of decode (spec 2.8, patch fp8-indexer): one query a sequence, 64 heads of 128 E4M3 codes, against the keys of a
// paged cache. score = (sum over heads of relu(q.k) * (weight * q's scale)) * the key's scale; f32 logits.
//
// A warp takes 32 keys at a time straight from the cache into registers; the codes of both become f16, which holds every E4M3
// value, so each product is exact. The query lies in shared memory in the order in which mma.sync wants it. Heads are summed in f32: those
// of a thread in order, then over four threads. Nothing past `visible` is read: a query's work is its context, not the
// longest context that the cache has room for (EARLY_EXIT 0: all pages are walked and masked, as eager fallbacks do).
//
// PRODUCT_BF16 (each q.k is rounded to bf16 before relu), EARLY_EXIT, QUERIES (1 or 2 a block; as prefill they share keys), LEAST
// (blocks at once on a multiprocessor): set by kernels.toml. 128 threads.
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

// The page of 32 keys from `first` on (pages hold a multiple of 32): -1 if the cache doesn't have it, -2 behind the query's keys.
DEVICE int page_of(const IndexArgs& a, int sequence, int first, int end) {
    if (first >= end) return -2;
    const int page = a.table[(long long)sequence * a.table_pages + first / a.page];
    return page < 0 || page >= a.pages ? -1 : page;
}

DEVICE void load(const IndexArgs& a, Tile& tile, int page, int first, int limit) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const long long slot = (long long)max(page, 0) * a.page + first % a.page + g;
    const uint4* from = (const uint4*)(a.keys + slot * 128) + t;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = m * 16 + r * 8;
            const bool there = page >= 0 && first + row + g < limit;
            tile.codes[m][r][0] = there ? from[row * 8] : make_uint4(0, 0, 0, 0);
            tile.codes[m][r][1] = there ? from[row * 8 + 4] : make_uint4(0, 0, 0, 0);
            tile.scale[m][r] = there ? a.key_scale[slot + row] : 0.0f;
        }
}

// The codes as f16, which mma.sync takes: [16-key tile][step of 16 dims].
DEVICE void widen(const Tile& tile, u32 (&k)[2][8][4]) {
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
}

// Of QUERIES neighbouring queries those that see the same page share its keys: which one's page is loaded first, and the most of its
// keys that one of them sees.
DEVICE void shared_page(const int (&pages)[QUERIES], const int (&ends)[QUERIES], const int (&visible)[QUERIES], int& page, int& limit) {
    page = pages[0];
#pragma unroll
    for (int j = 1; j < QUERIES; j++)
        if (page == -2) page = pages[j];
    limit = 0;
#pragma unroll
    for (int j = 0; j < QUERIES; j++)
        if (pages[j] == page) limit = max(limit, visible[j]);
}

// Grid: (blocks a sequence, batch / QUERIES). Blocks stride over the keys, so that the grid doesn't grow with the cache.
extern "C" __global__ void __launch_bounds__(THREADS, LEAST) index_logits(IndexArgs a) {
    // Steps of 16 dims, pairs of 8-head tiles, lanes: both registers of both tiles.
    __shared__ uint4 query[QUERIES][8][4][32];
    __shared__ float2 weights[QUERIES][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int sequence = blockIdx.y * QUERIES, room = a.table_pages * a.page;
    wait_for_previous();
    let_next();
    int visible[QUERIES], ends[QUERIES], end = 0;
#pragma unroll
    for (int j = 0; j < QUERIES; j++) {
        visible[j] = sequence + j < a.batch ? min(a.visible[sequence + j], room) : 0;
        ends[j] = EARLY_EXIT || sequence + j >= a.batch ? visible[j] : room;
        end = max(end, ends[j]);
    }
    const int stride = gridDim.x * 4 * KEYS, begin = (blockIdx.x * 4 + warp) * KEYS;
    if (blockIdx.x * 4 * KEYS >= end) return;

    int pages[QUERIES], page, limit;
#pragma unroll
    for (int j = 0; j < QUERIES; j++) pages[j] = page_of(a, sequence + j, begin, ends[j]);
    shared_page(pages, ends, visible, page, limit);
    Tile tile;
    load(a, tile, page, begin, limit);
    // A thread of the query: head tile `warp` and `warp + 4` ... as pairs; dims of a step as the keys' bytes have them.
    for (int at = threadIdx.x; at < QUERIES * 8 * 4 * 32; at += THREADS) {
        const int j = at >> 10, i = at & 1023, step = i >> 7, pair = (i >> 5) & 3, l = i & 31, lg = l >> 2, lt = l & 3;
        const int dim = (step >> 2) * 64 + lt * 16 + (step & 3) * 4;
        u32 r[4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const long long head = (long long)min(sequence + j, a.batch - 1) * 64 + (pair * 2 + n) * 8 + lg;
            u32 four = *(const u32*)(a.q + head * 128 + dim);
            r[n * 2] = wide_codes(four);
            r[n * 2 + 1] = wide_codes(four >> 16);
        }
        query[j][step][pair][l] = make_uint4(r[0], r[1], r[2], r[3]);
    }
    if (threadIdx.x < QUERIES * 32) {
        const long long at = (long long)min(sequence + (int)threadIdx.x / 32, a.batch - 1) * 64 + threadIdx.x % 32 * 2;
        weights[threadIdx.x / 32][threadIdx.x % 32] = make_float2(a.weight[at] * a.q_scale[at], a.weight[at + 1] * a.q_scale[at + 1]);
    }
    __syncthreads();

    for (int first = begin; first < end; first += stride) {
        u32 k[2][8][4];
        widen(tile, k);
        float scale[2][2];
        int now[QUERIES], held = page;
#pragma unroll
        for (int j = 0; j < QUERIES; j++) now[j] = pages[j];
#pragma unroll
        for (int i = 0; i < 4; i++) scale[i >> 1][i & 1] = tile.scale[i >> 1][i & 1];
        if (first + stride < end) {
#pragma unroll
            for (int j = 0; j < QUERIES; j++) pages[j] = page_of(a, sequence + j, first + stride, ends[j]);
            shared_page(pages, ends, visible, page, limit);
            load(a, tile, page, first + stride, limit);
        }
#pragma unroll(1)
        for (int j = 0; j < QUERIES; j++) {
            int mine = now[0], sees = visible[0], ends_at = ends[0];
#pragma unroll
            for (int i = 1; i < QUERIES; i++)
                if (j == i) {
                    mine = now[i];
                    sees = visible[i];
                    ends_at = ends[i];
                }
            if (mine == -2) continue;
            if (QUERIES > 1 && mine != held) {
                Tile own;
                load(a, own, mine, first, sees);
                widen(own, k);
#pragma unroll
                for (int i = 0; i < 4; i++) scale[i >> 1][i & 1] = own.scale[i >> 1][i & 1];
                held = mine;
            }
            float sum[2][2] = {};
#pragma unroll
            for (int pair = 0; pair < 4; pair++) {
                float d[2][2][4] = {};
#pragma unroll
                for (int step = 0; step < 8; step++) {
                    const uint4 q = query[j][step][pair][lane];
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        mma_f16(d[m][0], k[m][step][0], k[m][step][1], k[m][step][2], k[m][step][3], q.x, q.y);
                        mma_f16(d[m][1], k[m][step][0], k[m][step][1], k[m][step][2], k[m][step][3], q.z, q.w);
                    }
                }
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const float2 w = weights[j][(pair * 2 + n) * 4 + t];
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
                            sum[m][r] = fmaf(max_nan(p1, 0.0f), w.y, fmaf(max_nan(p0, 0.0f), w.x, sum[m][r]));
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
                    if (t == 0 && key < ends_at) a.logits[(long long)(sequence + j) * room + key] = key < sees ? s * scale[m][r] : -INFINITY;
                }
        }
    }
}
