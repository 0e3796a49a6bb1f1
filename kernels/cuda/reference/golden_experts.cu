// Golden's router and experts (spec 2.11), apart from their products.
#include "golden.cuh"

// s = sqrt(softplus(logit)) + bias. p: logits [S,E], bias [E], s [S,E]; n: S, E.
extern "C" __global__ void golden_affinities(const Args a) {
    const long long i = thread_index();
    if (i < a.n[0] * a.n[1]) {
        out32(a, 2)[i] = affinity(f32s(a, 0)[i]) + f32s(a, 1)[i % a.n[1]];
    }
}

// The k best of each row, best first: every expert counts who goes before it. p: s [S,E], idx [S,k]; n: S, E, k.
extern "C" __global__ void golden_choose(const Args a) {
    const long long i = thread_index(), experts = a.n[1], k = a.n[2];
    if (i >= a.n[0] * experts) {
        return;
    }
    const float* s = f32s(a, 0) + i / experts * experts;
    const long long e = i % experts;
    long long before = 0;
    for (long long v = 0; v < experts; ++v) {
        before += goes_before(s[v], v, s[e], e) ? 1 : 0;
    }
    if (before < k) {
        ((unsigned*)a.p[1])[i / experts * k + before] = (unsigned)e;
    }
}

// wt = s / sum(s) * factor over a row's experts, s = sqrt(softplus(logit)). p: logits [S,E], idx [S,k], wt [S,k]; n: S, E, k;
// f: factor.
extern "C" __global__ void golden_route_weights(const Args a) {
    const long long i = thread_index(), k = a.n[2];
    if (i >= a.n[0] * k) {
        return;
    }
    const float* logits = f32s(a, 0) + i / k * a.n[1];
    const unsigned* idx = u32s(a, 1) + i / k * k;
    double sum = 0.0;
    for (long long j = 0; j < k; ++j) {
        sum += (double)affinity(logits[idx[j]]);
    }
    out32(a, 2)[i] = (float)((double)affinity(logits[idx[i % k]]) / sum * a.f[0]);
}

// act = wt[row] * (silu(min(g, L)) * clamp(u, -L, L)); wt 0: without it. p: g, u, wt [rows] or 0, act; n: values, values a row;
// f: L.
extern "C" __global__ void golden_swiglu(const Args a) {
    const long long i = thread_index();
    if (i >= a.n[0]) {
        return;
    }
    const float limit = (float)a.f[0];
    float g = f32s(a, 0)[i], u = f32s(a, 1)[i];
    g = g > limit ? limit : g;
    u = u > limit ? limit : u < -limit ? -limit : u;
    const float act = g / (1.0f + exp_f32(-g)) * u;
    out32(a, 3)[i] = a.p[2] == 0 ? act : f32s(a, 2)[i / a.n[1]] * act;
}

// y[t,d] = sum over i of out[t, order[t,i], d], in f64, rounded once. p: out [S,K,D], order [S,K], y [S,D]; n: S, K, D.
extern "C" __global__ void golden_sum_experts(const Args a) {
    const long long i = thread_index(), k = a.n[1], d = a.n[2];
    if (i >= a.n[0] * d) {
        return;
    }
    const long long t = i / d;
    const float* out = f32s(a, 0) + t * k * d + i % d;
    const unsigned* order = u32s(a, 1) + t * k;
    double sum = 0.0;
    for (long long j = 0; j < k; ++j) {
        sum += (double)out[(long long)order[j] * d];
    }
    out32(a, 2)[i] = (float)sum;
}
