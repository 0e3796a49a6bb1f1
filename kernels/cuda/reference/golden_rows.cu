// Golden's ops on rows: norms (spec 2.4), rope (2.6), hyper-connections (2.2, 2.3, 2.13) and sums of two tensors.
#include "golden.cuh"

// r[s] = 1 / sqrt(mean(x[s,:]^2) + eps). p: x [S,n], r [S]; n: S, n; f: eps.
extern "C" __global__ void golden_inverse_rms(const Args a) {
    const long long s = thread_index(), n = a.n[1];
    if (s >= a.n[0]) {
        return;
    }
    const float* x = f32s(a, 0) + s * n;
    double total = 0.0;
    for (long long k = 0; k < n; k += K_BLOCK) {
        const long long m = n - k < K_BLOCK ? n - k : K_BLOCK;
        total += (double)chain(x + k, 1, x + k, 1, m);
    }
    out32(a, 1)[s] = (float)(1.0 / sqrt(total / (double)n + a.f[0]));
}

// y = (x * r) * w, w 0: x * r. p: x [S,n], r [S], w [n] or 0, y [S,n]; n: S, n.
extern "C" __global__ void golden_norm(const Args a) {
    const long long i = thread_index(), n = a.n[1];
    if (i >= a.n[0] * n) {
        return;
    }
    const float y = f32s(a, 0)[i] * f32s(a, 1)[i / n];
    out32(a, 3)[i] = a.p[2] == 0 ? y : y * f32s(a, 2)[i % n];
}

// Turns pairs of the last 2*half of every width values. p: x, turns [S,half,2] (cos, sin), y; n: values, width, half, values a
// row, 1 to turn back.
extern "C" __global__ void golden_rotate(const Args a) {
    const long long i = thread_index(), width = a.n[1], half = a.n[2];
    if (i >= a.n[0]) {
        return;
    }
    const float* x = f32s(a, 0);
    const long long at = i % width - (width - 2 * half);
    if (at < 0) {
        out32(a, 2)[i] = x[i];
        return;
    }
    const float* turn = f32s(a, 1) + (i / a.n[3] * half + at / 2) * 2;
    const float cosine = turn[0];
    const float sine = a.n[4] ? -turn[1] : turn[1];
    if (at % 2 == 0) {
        out32(a, 2)[i] = x[i] * cosine - x[i + 1] * sine;
    } else {
        out32(a, 2)[i] = x[i - 1] * sine + x[i] * cosine;
    }
}

// One thread a row: pre, post and comb of a mixing. p: m [S,(2+hc)*hc], r [S], base, scale [3], pre [S,hc], post [S,hc],
// comb [S,hc,hc]; n: S, hc, iterations; f: eps.
extern "C" __global__ void golden_coefficients(const Args a) {
    const long long t = thread_index(), hc = a.n[1], n = (2 + hc) * hc;
    if (t >= a.n[0]) {
        return;
    }
    const float* m = f32s(a, 0) + t * n;
    const float r = f32s(a, 1)[t];
    const float* base = f32s(a, 2);
    const float* scale = f32s(a, 3);
    const float eps = (float)a.f[0];
    float* pre = out32(a, 4) + t * hc;
    float* post = out32(a, 5) + t * hc;
    float* c = out32(a, 6) + t * hc * hc;
    for (long long j = 0; j < hc; ++j) {
        pre[j] = sigmoid(m[j] * r * scale[0] + base[j]) + eps;
        post[j] = 2.0f * sigmoid(m[hc + j] * r * scale[1] + base[hc + j]);
    }
    for (long long i = 0; i < hc * hc; ++i) {
        c[i] = m[2 * hc + i] * r * scale[2] + base[2 * hc + i];
    }
    for (long long j = 0; j < hc; ++j) {
        float* row = c + j * hc;
        float most = NEG_INF;
        for (long long i = 0; i < hc; ++i) {
            most = row[i] > most ? row[i] : most;
        }
        double den = 0.0;
        for (long long i = 0; i < hc; ++i) {
            row[i] = exp_f32(row[i] - most);
            den += (double)row[i];
        }
        for (long long i = 0; i < hc; ++i) {
            row[i] = (float)((double)row[i] / den) + eps;
        }
    }
    // Columns, then (iterations - 1) times rows and columns.
    for (long long pass = 0; pass < 2 * a.n[2] - 1; ++pass) {
        const long long from = pass % 2 ? hc : 1, step = pass % 2 ? 1 : hc;
        for (long long line = 0; line < hc; ++line) {
            float sum = 0.0f;
            for (long long i = 0; i < hc; ++i) {
                sum = sum + c[line * from + i * step];
            }
            sum = sum + eps;
            for (long long i = 0; i < hc; ++i) {
                c[line * from + i * step] = c[line * from + i * step] / sum;
            }
        }
    }
}

// pre = sigmoid(m * r * scale + base) + eps. p: m [S,hc], r [S], base [hc], pre [S,hc]; n: S, hc; f: scale, eps.
extern "C" __global__ void golden_head_weights(const Args a) {
    const long long i = thread_index(), hc = a.n[1];
    if (i >= a.n[0] * hc) {
        return;
    }
    const float v = f32s(a, 0)[i] * f32s(a, 1)[i / hc] * (float)a.f[0] + f32s(a, 2)[i % hc];
    out32(a, 3)[i] = sigmoid(v) + (float)a.f[1];
}

// sum over n terms of a[j * da] * x[j * dx], then, where last is not 0, of a_last * x_last; blocks from +0.0, then + 0.0.
__device__ __forceinline__ float mixed(const float* a, long long da, const float* x, long long dx, long long n, const float* a_last,
                                       const float* x_last) {
    const long long terms = n + (a_last ? 1 : 0);
    double total = 0.0;
    float first = 0.0f, sum = 0.0f;
    for (long long j = 0; j < terms; ++j) {
        sum = j < n ? __fmaf_rn(a[j * da], x[j * dx], sum) : __fmaf_rn(*a_last, *x_last, sum);
        if (j % K_BLOCK == K_BLOCK - 1 || j == terms - 1) {
            total += (double)sum;
            first = first + sum;
            sum = 0.0f;
        }
    }
    // One or two blocks in f32, as `dot`.
    return terms <= 2 * K_BLOCK ? first : (float)total;
}

// x[t,d] = sum_j pre[t,j] h[t,j,d]. p: pre [S,hc], h [S,hc,D], x [S,D]; n: S, hc, D.
extern "C" __global__ void golden_collapse(const Args a) {
    const long long i = thread_index(), hc = a.n[1], d = a.n[2];
    if (i >= a.n[0] * d) {
        return;
    }
    const long long t = i / d;
    out32(a, 2)[i] = mixed(f32s(a, 0) + t * hc, 1, f32s(a, 1) + t * hc * d + i % d, d, hc, nullptr, nullptr);
}

// out[t,k,d] = sum_j comb[t,j,k] h[t,j,d] + post[t,k] y[t,d]. p: comb [S,hc,hc], post [S,hc], h [S,hc,D], y [S,D], out [S,hc,D];
// n: S, hc, D.
extern "C" __global__ void golden_combine(const Args a) {
    const long long i = thread_index(), hc = a.n[1], d = a.n[2];
    if (i >= a.n[0] * hc * d) {
        return;
    }
    const long long t = i / (hc * d), k = i / d % hc, at = i % d;
    const float* comb = f32s(a, 0) + t * hc * hc + k;
    out32(a, 4)[i] = mixed(comb, hc, f32s(a, 2) + t * hc * d + at, d, hc, f32s(a, 1) + t * hc + k, f32s(a, 3) + t * d + at);
}

// y[i] = b[row, col] + x[i]: rows of d values of b stand for `repeat` rows of x each. p: x, b, y; n: values, d, repeat.
extern "C" __global__ void golden_add(const Args a) {
    const long long i = thread_index(), d = a.n[1];
    if (i < a.n[0]) {
        out32(a, 2)[i] = f32s(a, 1)[i / d / a.n[2] * d + i % d] + f32s(a, 0)[i];
    }
}
