#pragma once
// Golden arithmetic on the device: the normative text is reference/src/linalg/mod.rs, and every result has its bits. One thread
// an output, fixed blocks of 128 along K, fused multiply-adds where golden fuses and nowhere else (compiled with --fmad=false),
// f64 across blocks, functions by golden's own polynomials. No shared memory, no barriers, no atomics.

// The one parameter of every kernel: addresses, sizes and factors, named at the head of each kernel.
struct Args {
    unsigned long long p[8];
    long long n[8];
    double f[2];
};

#define K_BLOCK 128
#define LANES 16
#define NEG_INF (__int_as_float(0xff800000))

__device__ __forceinline__ long long thread_index() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ const float* f32s(const Args& a, int i) {
    return (const float*)a.p[i];
}

__device__ __forceinline__ float* out32(const Args& a, int i) {
    return (float*)a.p[i];
}

__device__ __forceinline__ const unsigned* u32s(const Args& a, int i) {
    return (const unsigned*)a.p[i];
}

__device__ __forceinline__ double bits(unsigned long long v) {
    return __longlong_as_double((long long)v);
}

// One block of a dot product: a chain from +0.0 in ascending k.
__device__ __forceinline__ float chain(const float* x, long long dx, const float* w, long long dw, long long n) {
    float sum = 0.0f;
    for (long long k = 0; k < n; ++k) {
        sum = __fmaf_rn(x[k * dx], w[k * dw], sum);
    }
    return sum;
}

// A dot product of length n. Two blocks need no f64: the sum of two f32 is the same either way.
__device__ __forceinline__ float dot(const float* x, const float* w, long long dw, long long n) {
    if (n <= K_BLOCK) {
        return chain(x, 1, w, dw, n);
    }
    if (n <= 2 * K_BLOCK) {
        const float first = chain(x, 1, w, dw, K_BLOCK);
        return first + chain(x + K_BLOCK, 1, w + K_BLOCK * dw, dw, n - K_BLOCK);
    }
    double total = 0.0;
    for (long long k = 0; k < n; k += K_BLOCK) {
        const long long m = n - k < K_BLOCK ? n - k : K_BLOCK;
        total += (double)chain(x + k, 1, w + k * dw, dw, m);
    }
    return (float)total;
}

#define LN2_HI 6.931471803691238e-1
#define LN2_LO 1.9082149292705877e-10

// e^x of an f32 argument, in f64: the steps of reference/src/linalg/elementary.rs.
__device__ __forceinline__ double exp_wide(double x) {
    x = x > 150.0 ? 150.0 : x;
    x = x < -150.0 ? -150.0 : x;
    const double half = x < 0.0 ? -0.5 : 0.5;
    const double nearest = trunc(bits(0x3FF71547652B82FEull) * x + half);
    const double k = fabs(x) < bits(0x3fd62e4300000000ull) ? 0.0 : nearest;
    const double hi = x - k * LN2_HI;
    const double lo = k * LN2_LO;
    const double r = hi - lo;
    const double rr = r * r;
    const double p0 = bits(0x3FC555555555553Eull), p1 = bits(0xBF66C16C16BEBD93ull), p2 = bits(0x3F11566AAF25DE2Cull),
                 p3 = bits(0xBEBBBD41C5D26BF1ull), p4 = bits(0x3E66376972BEA4D0ull);
    const double c = r - rr * (p0 + rr * (p1 + rr * (p2 + rr * (p3 + rr * p4))));
    const double y = 1.0 + (r * c / (2.0 - c) - lo + hi);
    const unsigned long long shifted = (unsigned long long)__double_as_longlong(k + 6755399441055744.0) + 1023ull;
    const double two_to_k = bits(shifted << 52);
    return fabs(x) < bits(0x3e30000100000000ull) ? 1.0 + x : y * two_to_k;
}

__device__ __forceinline__ float exp_f32(float x) {
    return (float)exp_wide((double)x);
}

// The polynomial that log and log1p share.
__device__ __forceinline__ double log_rest(double z) {
    const double w = z * z;
    const double t1 = w * (bits(0x3FD999999997FA04ull) + w * (bits(0x3FCC71C51D8E78AFull) + w * bits(0x3FC39A09D078C69Full)));
    const double t2 = z
        * (bits(0x3FE5555555555593ull)
           + w * (bits(0x3FD2492494229359ull) + w * (bits(0x3FC7466496CB03DEull) + w * bits(0x3FC2F112DF3E5244ull))));
    return t2 + t1;
}

// ln(1 + x) for 0 <= x < 2^53, in f64: the steps of reference/src/linalg/elementary.rs.
__device__ __forceinline__ double log1p_wide(double x) {
    const unsigned long long half_sqrt2 = 0x3FE6A09Eull << 32, one = 0x3FF00000ull << 32;
    const bool near = x < bits(0x3FDA827A00000000ull);
    const double u = 1.0 + x;
    const unsigned long long shifted = (unsigned long long)__double_as_longlong(u) + (one - half_sqrt2);
    double k = bits((shifted >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    const double left = k >= 2.0 ? 1.0 - (u - x) : x - (u - 1.0);
    double c = left / u;
    double f = bits((shifted & 0x000FFFFFFFFFFFFFull) + half_sqrt2) - 1.0;
    k = near ? 0.0 : k;
    c = near ? 0.0 : c;
    f = near ? x : f;
    const double hfsq = 0.5 * f * f;
    const double s = f / (2.0 + f);
    const double r = log_rest(s * s);
    return s * (hfsq + r) + (k * LN2_LO + c) - hfsq + f + k * LN2_HI;
}

// ln(x) of a softmax denominator (a normal number over 0, or NaN or infinite), in f64: libm's log, after FreeBSD's msun.
__device__ __forceinline__ double log_wide(double x) {
    const unsigned long long ui = (unsigned long long)__double_as_longlong(x);
    unsigned hx = (unsigned)(ui >> 32);
    if (x == 0.0) {
        return -bits(0x7ff0000000000000ull);
    }
    if (hx >= 0x7ff00000u) {
        return hx >> 31 ? bits(0x7ff8000000000000ull) : x;
    }
    if (hx == 0x3ff00000u && (unsigned)ui == 0u) {
        return 0.0;
    }
    hx += 0x3ff00000u - 0x3fe6a09eu;
    const int k = (int)(hx >> 20) - 0x3ff;
    hx = (hx & 0x000fffffu) + 0x3fe6a09eu;
    const double f = bits(((unsigned long long)hx << 32) | (ui & 0xffffffffull)) - 1.0;
    const double hfsq = 0.5 * f * f;
    const double s = f / (2.0 + f);
    const double r = log_rest(s * s);
    const double dk = (double)k;
    return s * (hfsq + r) + dk * LN2_LO - hfsq + f + dk * LN2_HI;
}

__device__ __forceinline__ float sigmoid(float v) {
    return 1.0f / (1.0f + exp_f32(-v));
}

// sqrt(softplus(v)), softplus linear above 20.
__device__ __forceinline__ float affinity(float v) {
    const float below = (float)log1p_wide(exp_wide((double)v));
    return __fsqrt_rn(v > 20.0f ? v : below);
}

// Whether score x at index a comes before y at b: larger first, then the lower index; NaN after every number.
__device__ __forceinline__ bool goes_before(float x, long long a, float y, long long b) {
    if (x > y) {
        return true;
    }
    if (x < y) {
        return false;
    }
    if ((x != x) != (y != y)) {
        return y != y;
    }
    return a < b;
}
