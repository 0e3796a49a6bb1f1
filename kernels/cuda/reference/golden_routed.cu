// Rows on their way to a routed expert and from there into the sums over experts (spec 2.11).
#include "golden.cuh"

// y[i,:] = x[row[i],:]. p: x, row [S], y [S,D]; n: S, D.
extern "C" __global__ void golden_gather(const Args a) {
    const long long i = thread_index(), d = a.n[1];
    if (i < a.n[0] * d) {
        out32(a, 2)[i] = f32s(a, 0)[(long long)u32s(a, 1)[i / d] * d + i % d];
    }
}

// Sums of nothing. p: sums, f64; n: values.
extern "C" __global__ void golden_clear(const Args a) {
    const long long i = thread_index();
    if (i < a.n[0]) {
        ((double*)a.p[0])[i] = 0.0;
    }
}

// sums[row[r],:] += y[from[r],:], then the next up to from[r + 1], in f64. p: y, row [R], from [R+1], sums [.,D], f64; n: R, D.
extern "C" __global__ void golden_accumulate(const Args a) {
    const long long i = thread_index(), d = a.n[1];
    if (i >= a.n[0] * d) {
        return;
    }
    const long long r = i / d, column = i % d;
    double* sum = (double*)a.p[3] + (long long)u32s(a, 1)[r] * d + column;
    double total = *sum;
    for (long long j = u32s(a, 2)[r]; j < (long long)u32s(a, 2)[r + 1]; ++j) {
        total += (double)f32s(a, 0)[j * d + column];
    }
    *sum = total;
}

// y = sums, rounded once. p: sums, f64, y; n: values, the first one.
extern "C" __global__ void golden_round(const Args a) {
    const long long i = thread_index();
    if (i < a.n[0]) {
        out32(a, 1)[i] = (float)((const double*)a.p[0])[a.n[1] + i];
    }
}
