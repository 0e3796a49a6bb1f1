// Golden's softmaxes: sink attention (spec 2.9) and the compressor's pooling (spec 2.7).
#include "golden.cuh"

// score[c,h] = (key . q[t,h]) * scale for every key c of every query. p: q [S,H,d], keys [n,d], list [C], row [C], score [C,H];
// n: C, H, d; f: scale.
extern "C" __global__ void golden_scores(const Args a) {
    const long long i = thread_index(), heads = a.n[1], d = a.n[2];
    if (i >= a.n[0] * heads) {
        return;
    }
    const long long c = i / heads, h = i % heads;
    const float* key = f32s(a, 1) + (long long)u32s(a, 2)[c] * d;
    const float* q = f32s(a, 0) + ((long long)u32s(a, 3)[c] * heads + h) * d;
    out32(a, 4)[i] = dot(key, q, 1, d) * (float)a.f[0];
}

// One thread a query and head: weights in place of scores, their sum and lse. p: score [C,H], from [S+1], sink [H], den [S,H] f64,
// lse [S,H]; n: S, H.
extern "C" __global__ void golden_weights(const Args a) {
    const long long i = thread_index(), heads = a.n[1];
    if (i >= a.n[0] * heads) {
        return;
    }
    const long long t = i / heads, h = i % heads;
    float* score = out32(a, 0) + h;
    const long long from = u32s(a, 1)[t], to = u32s(a, 1)[t + 1];
    const float sink = f32s(a, 2)[h];
    float most = NEG_INF;
    for (long long c = from; c < to; ++c) {
        const float s = score[c * heads];
        most = s > most ? s : most;
    }
    most = most == NEG_INF ? sink : most;
    double den = 0.0;
    for (long long c = from; c < to; ++c) {
        const float p = exp_f32(score[c * heads] - most);
        score[c * heads] = p;
        den += (double)p;
    }
    den = den + (double)exp_f32(sink - most);
    ((double*)a.p[3])[i] = den;
    out32(a, 4)[i] = (float)(log_wide(den) + (double)most);
}

// o[t,h,d] = sum_c p[c,h] key[c,d] / den[t,h]. p: p [C,H], from [S+1], list [C], keys [n,d], den [S,H] f64, o [S,H,d]; n: S, H, d.
extern "C" __global__ void golden_values(const Args a) {
    const long long i = thread_index(), heads = a.n[1], d = a.n[2];
    if (i >= a.n[0] * heads * d) {
        return;
    }
    const long long t = i / (heads * d), h = i / d % heads;
    const float* p = f32s(a, 0) + h;
    const float* keys = f32s(a, 3) + i % d;
    const unsigned* list = u32s(a, 2);
    const long long from = u32s(a, 1)[t], to = u32s(a, 1)[t + 1];
    double total = 0.0;
    for (long long c0 = from; c0 < to; c0 += K_BLOCK) {
        float sum = 0.0f;
        for (long long c = c0; c < to && c < c0 + K_BLOCK; ++c) {
            sum = __fmaf_rn(p[c * heads], keys[(long long)list[c] * d], sum);
        }
        total += (double)sum;
    }
    out32(a, 5)[i] = (float)(total / ((const double*)a.p[4])[t * heads + h]);
}

// z = score + ape[slot]. p: score [n*r,columns], ape [r,columns], z; n: values, r*columns.
extern "C" __global__ void golden_ape(const Args a) {
    const long long i = thread_index();
    if (i < a.n[0]) {
        out32(a, 2)[i] = f32s(a, 0)[i] + f32s(a, 1)[i % a.n[1]];
    }
}

// One thread an entry and channel: softmax over slots. With overlap (columns = 2 width) the slots are the r rows of the window
// before, their first width columns, then the r rows of this one, their last. p: kvp [n*r,columns], z, kvp of the window before the
// first [r,width] or 0, its z, entry [n,width]; n: n, r, columns, width.
extern "C" __global__ void golden_pool(const Args a) {
    const long long i = thread_index(), r = a.n[1], columns = a.n[2], width = a.n[3];
    if (i >= a.n[0] * width) {
        return;
    }
    const long long e = i / width, d = i % width;
    const bool overlap = columns != width;
    // The slots before this window's: values, scores, and the distance of two slots.
    const float *before = nullptr, *z_before = nullptr;
    long long step = columns;
    if (overlap && e > 0) {
        before = f32s(a, 0) + (e - 1) * r * columns + d;
        z_before = f32s(a, 1) + (e - 1) * r * columns + d;
    } else if (overlap && a.p[2] != 0) {
        before = f32s(a, 2) + d;
        z_before = f32s(a, 3) + d;
        step = width;
    }
    const float* own = f32s(a, 0) + e * r * columns + (overlap ? width : 0) + d;
    const float* z_own = f32s(a, 1) + e * r * columns + (overlap ? width : 0) + d;
    const long long first = before ? r : 0, slots = first + r;
    float most = NEG_INF;
    for (long long s = 0; s < slots; ++s) {
        const float z = s < first ? z_before[s * step] : z_own[(s - first) * columns];
        most = z > most ? z : most;
    }
    double den = 0.0, total = 0.0;
    float sum = 0.0f;
    for (long long s = 0; s < slots; ++s) {
        const float z = s < first ? z_before[s * step] : z_own[(s - first) * columns];
        const float value = s < first ? before[s * step] : own[(s - first) * columns];
        const float p = exp_f32(z - most);
        den += (double)p;
        sum = __fmaf_rn(p, value, sum);
        if (s % K_BLOCK == K_BLOCK - 1 || s == slots - 1) {
            total += (double)sum;
            sum = 0.0f;
        }
    }
    out32(a, 4)[i] = (float)(total / den);
}
