// Golden's products: linears (spec 2.5 to 2.13) and index scores (spec 2.8).
#include "golden.cuh"

// y[s,n] = x[s,:] . w[n,:]. p: x [S,k], w in panels [ceil(n/16)][k][16], y [S,n]; n: S, n, k.
extern "C" __global__ void golden_linear(const Args a) {
    const long long i = thread_index(), outputs = a.n[1], k = a.n[2];
    if (i >= a.n[0] * outputs) {
        return;
    }
    const long long s = i / outputs, o = i % outputs;
    out32(a, 2)[i] = dot(f32s(a, 0) + s * k, f32s(a, 1) + o / LANES * k * LANES + o % LANES, LANES, k);
}

// y = x * f[0]. p: x, y; n: values.
extern "C" __global__ void golden_scale(const Args a) {
    const long long i = thread_index();
    if (i < a.n[0]) {
        out32(a, 1)[i] = f32s(a, 0)[i] * (float)a.f[0];
    }
}

// score[t,w] = sum_h relu(q[t,h] . k[w]) * weight[t,h], -inf where w is not visible. p: q [S,H,d], k [T,d], weight [S,H],
// score [S,T]; n: S, T, H, d, first position, ratio.
extern "C" __global__ void golden_index_scores(const Args a) {
    const long long i = thread_index(), total = a.n[1], heads = a.n[2], d = a.n[3];
    if (i >= a.n[0] * total) {
        return;
    }
    const long long t = i / total, w = i % total;
    if (w >= (a.n[4] + t + 1) / a.n[5]) {
        out32(a, 3)[i] = NEG_INF;
        return;
    }
    const float* q = f32s(a, 0) + t * heads * d;
    const float* key = f32s(a, 1) + w * d;
    const float* weight = f32s(a, 2) + t * heads;
    double sum = 0.0;
    for (long long h0 = 0; h0 < heads; h0 += K_BLOCK) {
        float block = 0.0f;
        for (long long h = h0; h < heads && h < h0 + K_BLOCK; ++h) {
            const float product = dot(q + h * d, key, 1, d);
            block = __fmaf_rn(product <= 0.0f ? 0.0f : product, weight[h], block);
        }
        sum += (double)block;
    }
    out32(a, 3)[i] = (float)sum;
}

// 1 where row t takes entry w. p: scores [S,T] (0: all visible ones), mask [S,T]; n: S, T, topk, first position, ratio.
extern "C" __global__ void golden_select(const Args a) {
    const long long i = thread_index(), total = a.n[1], topk = a.n[2];
    if (i >= a.n[0] * total) {
        return;
    }
    const long long t = i / total, w = i % total;
    long long visible = (a.n[3] + t + 1) / a.n[4];
    visible = visible < total ? visible : total;
    bool taken = w < visible;
    if (taken && a.p[0] != 0 && visible > topk) {
        const float* scores = f32s(a, 0) + t * total;
        long long before = 0;
        for (long long v = 0; v < visible; ++v) {
            before += goes_before(scores[v], v, scores[w], w) ? 1 : 0;
        }
        taken = before < topk;
    }
    ((unsigned char*)a.p[1])[i] = taken ? 1 : 0;
}
