// Golden's decoding of stored weights: the values of reference/src/decode/, bit by bit.
#include "golden.cuh"

// Numbers of the forms, as kernels/src/golden/weights.rs counts them. NONE: no scale.
#define NONE 0
#define F32 1
#define BF16 2
#define E4M3 3
#define E8M0 4
#define E2M1 5

// 2^-9 and 2^-127.
#define LEAST_E4M3 (__int_as_float(0x3b000000))
#define LEAST_E8M0 (__int_as_float(0x00400000))
#define NOT_A_NUMBER (__int_as_float(0x7fc00000))

__device__ __forceinline__ float with_sign(float magnitude, bool negative) {
    return negative ? -magnitude : magnitude;
}

__device__ __forceinline__ float e4m3(unsigned code) {
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    float magnitude = __int_as_float((int)(exponent + 120u << 23 | mantissa << 20));
    magnitude = exponent == 0u ? (float)mantissa * LEAST_E4M3 : magnitude;
    magnitude = (code & 0x7fu) == 0x7fu ? NOT_A_NUMBER : magnitude;
    return with_sign(magnitude, (code & 0x80u) != 0u);
}

__device__ __forceinline__ float e8m0(unsigned code) {
    const float power = code == 0u ? LEAST_E8M0 : __int_as_float((int)(code << 23));
    return code == 255u ? NOT_A_NUMBER : power;
}

// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
__device__ __forceinline__ float e2m1(unsigned code) {
    const unsigned exponent = code >> 1 & 3u, mantissa = code & 1u;
    const float normal = __int_as_float((int)(exponent + 126u << 23 | mantissa << 22));
    return with_sign(exponent == 0u ? (float)mantissa * 0.5f : normal, (code & 8u) != 0u);
}

// Value i of a row that begins at `row`.
__device__ __forceinline__ float value_at(const unsigned char* row, long long i, long long form) {
    if (form == F32) {
        return ((const float*)row)[i];
    }
    if (form == BF16) {
        return __int_as_float((int)((unsigned)((const unsigned short*)row)[i] << 16));
    }
    if (form == E4M3) {
        return e4m3(row[i]);
    }
    if (form == E8M0) {
        return e8m0(row[i]);
    }
    const unsigned pair = row[i / 2];
    return e2m1(i % 2 == 0 ? pair & 15u : pair >> 4);
}

__device__ __forceinline__ long long bytes_of(long long n, long long form) {
    return form == F32 ? 4 * n : form == BF16 ? 2 * n : form == E2M1 ? (n + 1) / 2 : n;
}

// w in panels [ceil(n/16)][k][16], zero for outputs that aren't there: value * scale[(n + above) / rows, k / columns], and * f[0]
// where a scale is E4M3. p: codes [n][bytes of k], scales or 0, w; n: n, k, form of a code, form of a scale, rows, columns, above.
extern "C" __global__ void golden_decode(const Args a) {
    const long long i = thread_index(), outputs = a.n[0], k = a.n[1], form = a.n[2], scaled = a.n[3];
    if (i >= (outputs + LANES - 1) / LANES * k * LANES) {
        return;
    }
    const long long lane = i % LANES, at = i / LANES % k, n = i / LANES / k * LANES + lane;
    float value = 0.0f;
    if (n < outputs) {
        value = value_at((const unsigned char*)a.p[0] + n * bytes_of(k, form), at, form);
        if (scaled != NONE) {
            const long long wide = (k + a.n[5] - 1) / a.n[5];
            const unsigned char* row = (const unsigned char*)a.p[1] + (n + a.n[6]) / a.n[4] * bytes_of(wide, scaled);
            value = value * value_at(row, at / a.n[5], scaled);
            value = scaled == E4M3 ? value * (float)a.f[0] : value;
        }
    }
    out32(a, 2)[i] = value;
}
