// The naive counterpart of compare.cu: one thread a run of pairs, one pair after the other, every sum in f64; the last thread adds
// the runs in order. Written apart from it.

struct NaiveArgs {
    unsigned long long x, y, partial, record;
    long long n, tile, tiles;
    int x_bf16, y_bf16;
};

static __device__ double number(unsigned long long from, long long i, int bf16) {
    if (!bf16) return (double)((const float*)from)[i];
    return (double)__uint_as_float((unsigned)((const unsigned short*)from)[i] << 16);
}

static __device__ bool is_finite(double v) {
    return v - v == 0.0;
}

// Words as in compare.cu, [tiles, 20].
extern "C" __global__ void __launch_bounds__(256) naive_runs(const NaiveArgs a) {
    const long long run = (long long)blockIdx.x * 256 + threadIdx.x;
    if (run >= a.tiles) return;
    const double low = -__longlong_as_double(0x7ff0000000000000ll);
    double sums[8] = {}, most = 0.0, most_x = 0.0, most_y = 0.0;
    unsigned long long counts[6] = {}, first = ~0ull, place = ~0ull;
    const long long from = run * a.tile, to = from + a.tile < a.n ? from + a.tile : a.n;
    for (long long i = from; i < to; i++) {
        const double x = number(a.x, i, a.x_bf16), y = number(a.y, i, a.y_bf16);
        if (!is_finite(x) || !is_finite(y)) {
            if (x == low && y == low) {
                counts[0]++;
                continue;
            }
            counts[1] += x != x;
            counts[2] += y != y;
            counts[3] += x == low || x == -low;
            counts[4] += y == low || y == -low;
            counts[5]++;
            if (first == ~0ull) first = (unsigned long long)i;
            continue;
        }
        const double d = y - x;
        sums[0] += x;
        sums[1] += y;
        sums[2] += x * x;
        sums[3] += y * y;
        sums[4] += x * y;
        sums[5] += fabs(d);
        sums[6] += d;
        sums[7] += d * d;
        if (fabs(d) > most) {
            most = fabs(d);
            place = (unsigned long long)i;
        }
        most_x = fabs(x) > most_x ? fabs(x) : most_x;
        most_y = fabs(y) > most_y ? fabs(y) : most_y;
    }
    double* out = (double*)a.partial + 20 * run;
    unsigned long long* words = (unsigned long long*)out;
    for (int i = 0; i < 8; i++) out[i] = sums[i];
    out[8] = most;
    words[9] = place;
    out[10] = most_x;
    out[11] = most_y;
    for (int i = 0; i < 6; i++) words[12 + i] = counts[i];
    words[18] = first;
    words[19] = (unsigned long long)(to - from);
}

extern "C" __global__ void __launch_bounds__(32) naive_record(const NaiveArgs a) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    double* out = (double*)a.record;
    unsigned long long* words = (unsigned long long*)out;
    for (int i = 0; i < 20; i++) words[i] = i == 9 || i == 18 ? ~0ull : 0;
    for (long long run = 0; run < a.tiles; run++) {
        const double* from = (const double*)a.partial + 20 * run;
        const unsigned long long* there = (const unsigned long long*)from;
        for (int i = 0; i < 8; i++) out[i] += from[i];
        if (from[8] > out[8]) {
            out[8] = from[8];
            words[9] = there[9];
        }
        for (int i = 10; i < 12; i++) out[i] = from[i] > out[i] ? from[i] : out[i];
        for (int i = 12; i < 18; i++) words[i] += there[i];
        if (words[18] == ~0ull) words[18] = there[18];
        words[19] += there[19];
    }
}
