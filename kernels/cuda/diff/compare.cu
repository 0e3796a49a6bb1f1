// The core set of the diff engine over two tensors that lie on the device (diff/src/moments/core_set.rs): one pass, and only a
// record of 20 words leaves. The pairs are cut into tiles by their number alone; a thread of a tile takes every 256th group of
// four pairs, whatever the types and the alignment, lanes are joined by halves, tiles in order: the same bits for any grid.
// No atomics.
//
// Sums are f64 from the first pair on. Products of two f32 are exact in f64, nothing overflows, and a chain of a tile's share of a
// thread, eight halvings and a share of the tiles are at most 400 roundings: 5e-14 of the sum of magnitudes. f32 pairs
// (two-sum) would take 60 additions a pair where this takes ten f64 operations, and squares outside f32 another way.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
// Pairs that a thread takes at a time.
#define GROUP 4
#define STRIDE (THREADS * GROUP)
#define SUMS 8
// Words of a record.
#define MAX_D 8    // max |d|, f64
#define MAX_AT 9   // its first place
#define MAX_X 10   // max |x|, f64
#define MAX_Y 11   // max |y|, f64
#define MASKED 12  // pairs of two -inf
#define NAN_X 13
#define NAN_Y 14
#define INF_X 15
#define INF_Y 16
#define NONFINITE 17  // pairs in which something is not finite, masked ones apart
#define FIRST 18      // the first of them; all ones: none
#define COUNT 19      // pairs
#define WORDS 20
#define NONE 0xffffffffffffffffull

struct CompareArgs {
    u64 x, y;        // tensors
    u64 partial;     // [WORDS, tiles]
    u64 record;      // [WORDS]
    long long n;     // pairs
    long long tile;  // pairs a tile, a multiple of STRIDE * UNROLL
    long long tiles;
    int wide;  // both tensors allow loads of a whole group
    int unused;
};

struct F32 {
    typedef float value;
    typedef float4 group;
    static __device__ __forceinline__ group zero() {
        group g;
        g.x = g.y = g.z = g.w = 0.0f;
        return g;
    }
    static __device__ __forceinline__ void put(group& g, int j, value v) {
        (j == 0 ? g.x : j == 1 ? g.y : j == 2 ? g.z : g.w) = v;
    }
    static __device__ __forceinline__ void open(const group& g, float* v) {
        v[0] = g.x;
        v[1] = g.y;
        v[2] = g.z;
        v[3] = g.w;
    }
};

struct Bf16 {
    typedef unsigned short value;
    typedef uint2 group;
    static __device__ __forceinline__ group zero() {
        group g;
        g.x = g.y = 0;
        return g;
    }
    static __device__ __forceinline__ void put(group& g, int j, value v) {
        (j < 2 ? g.x : g.y) |= (u32)v << (j % 2 * 16);
    }
    static __device__ __forceinline__ void open(const group& g, float* v) {
        v[0] = __uint_as_float(g.x << 16);
        v[1] = __uint_as_float(g.x & 0xffff0000u);
        v[2] = __uint_as_float(g.y << 16);
        v[3] = __uint_as_float(g.y & 0xffff0000u);
    }
};

// What a thread has of its tile.
struct Own {
    double sum[SUMS];  // x, y, xx, yy, xy, |d|, d, dd
    double most;       // the largest distance, with its sign
    float most_x, most_y;
    u32 most_at, masked, nan_x, nan_y, inf_x, inf_y, nonfinite, first;
};

// A group of which something may be missing or at an odd address.
template <class T>
__device__ __forceinline__ typename T::group gathered(const typename T::value* from, long long left) {
    typename T::group g = T::zero();
#pragma unroll
    for (int j = 0; j < GROUP; j++)
        if (j < left) T::put(g, j, from[j]);
    return g;
}

// Counts what is not finite and takes it out of the group.
static __device__ __forceinline__ void set_aside(float* x, float* y, u32 at, Own& own) {
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        const u32 bx = __float_as_uint(x[j]), by = __float_as_uint(y[j]);
        const u32 mx = bx & 0x7fffffffu, my = by & 0x7fffffffu;
        if (mx < 0x7f800000u && my < 0x7f800000u) continue;
        x[j] = y[j] = 0.0f;
        if (bx == 0xff800000u && by == 0xff800000u) {
            own.masked++;
            continue;
        }
        own.nan_x += mx > 0x7f800000u;
        own.nan_y += my > 0x7f800000u;
        own.inf_x += mx == 0x7f800000u;
        own.inf_y += my == 0x7f800000u;
        own.nonfinite++;
        own.first = own.first < at + j ? own.first : at + j;
    }
}

// Four pairs, in order; the first is pair `at` of the tile.
static __device__ __forceinline__ void take(float* x, float* y, u32 at, Own& own) {
    // Zero times a number is zero: only what is not finite makes this a NaN.
    float finite = 0.0f;
#pragma unroll
    for (int j = 0; j < GROUP; j++) finite = fmaf(y[j], 0.0f, fmaf(x[j], 0.0f, finite));
    if (finite != finite) set_aside(x, y, at, own);
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        own.most_x = fmaxf(own.most_x, fabsf(x[j]));
        own.most_y = fmaxf(own.most_y, fabsf(y[j]));
        const double a = (double)x[j], b = (double)y[j], d = b - a;
        own.sum[0] += a;
        own.sum[1] += b;
        own.sum[2] = fma(a, a, own.sum[2]);
        own.sum[3] = fma(b, b, own.sum[3]);
        own.sum[4] = fma(a, b, own.sum[4]);
        own.sum[5] += fabs(d);
        own.sum[6] += d;
        own.sum[7] = fma(d, d, own.sum[7]);
        if (fabs(d) > fabs(own.most)) {
            own.most = d;
            own.most_at = at + j;
        }
    }
}

static __device__ __forceinline__ u64 bits_of(double v) {
    return (u64)__double_as_longlong(v);
}

static __device__ __forceinline__ double number_of(u64 bits) {
    return __longlong_as_double((long long)bits);
}

// Two values of one word of a record; the place of a distance goes with the distance.
static __device__ __forceinline__ u64 both(int word, u64 a, u64 b) {
    if (word < SUMS) return bits_of(number_of(a) + number_of(b));
    // Bits of numbers that are not negative are ordered as the numbers.
    if (word == MAX_X || word == MAX_Y) return a > b ? a : b;
    if (word == FIRST) return a < b ? a : b;
    return a + b;
}

// Whether the distance of lane `other` is larger than that of lane `t`, or the same and earlier. No distance has no place.
static __device__ __forceinline__ bool worse(u64 (*lanes)[THREADS], u32 other, u32 t) {
    const u64 a = lanes[MAX_D][other], b = lanes[MAX_D][t];
    return a > b || (a == b && lanes[MAX_AT][other] < lanes[MAX_AT][t]);
}

template <class X, class Y>
__device__ __forceinline__ void compare_tiles(const CompareArgs& a) {
    __shared__ u64 lanes[MASKED][THREADS];
    const u32 t = threadIdx.x;
    const typename X::value* x = (const typename X::value*)a.x;
    const typename Y::value* y = (const typename Y::value*)a.y;
    const long long mine = (long long)t * GROUP;
    for (long long tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        const long long start = tile * a.tile, end = start + a.tile < a.n ? start + a.tile : a.n;
        Own own;
#pragma unroll
        for (int i = 0; i < SUMS; i++) own.sum[i] = 0.0;
        own.most = 0.0;
        own.most_x = own.most_y = 0.0f;
        own.most_at = own.first = 0xffffffffu;
        own.masked = own.nan_x = own.nan_y = own.inf_x = own.inf_y = own.nonfinite = 0;
        for (long long at = start + mine; at < end; at += STRIDE * UNROLL) {
            typename X::group xs[UNROLL];
            typename Y::group ys[UNROLL];
            if (a.wide && at + STRIDE * (UNROLL - 1) + GROUP <= end) {
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    xs[u] = *(const typename X::group*)(x + at + u * STRIDE);
                    ys[u] = *(const typename Y::group*)(y + at + u * STRIDE);
                }
            } else {
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    // What lies past the end is zero on both sides and adds nothing.
                    xs[u] = gathered<X>(x + at + u * STRIDE, end - (at + u * STRIDE));
                    ys[u] = gathered<Y>(y + at + u * STRIDE, end - (at + u * STRIDE));
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float vx[GROUP], vy[GROUP];
                X::open(xs[u], vx);
                Y::open(ys[u], vy);
                take(vx, vy, (u32)(at - start) + u * STRIDE, own);
            }
        }
        u64* out = (u64*)a.partial + tile;
#pragma unroll
        for (int w = 0; w < SUMS; w++) lanes[w][t] = bits_of(own.sum[w]);
        lanes[MAX_D][t] = bits_of(fabs(own.most));
        lanes[MAX_AT][t] = own.most_at == 0xffffffffu ? NONE : (u64)start + own.most_at;
        lanes[MAX_X][t] = bits_of((double)own.most_x);
        lanes[MAX_Y][t] = bits_of((double)own.most_y);
        __syncthreads();
        for (u32 half = THREADS / 2; half > 0; half /= 2) {
            if (t < half) {
#pragma unroll
                for (int w = 0; w < MASKED; w++)
                    if (w != MAX_D && w != MAX_AT) lanes[w][t] = both(w, lanes[w][t], lanes[w][t + half]);
                if (worse(lanes, t + half, t)) {
                    lanes[MAX_D][t] = lanes[MAX_D][t + half];
                    lanes[MAX_AT][t] = lanes[MAX_AT][t + half];
                }
            }
            __syncthreads();
        }
        if (t < MASKED) out[t * a.tiles] = lanes[t][0];
        if (t == COUNT) out[t * a.tiles] = (u64)(end - start);
        // Mostly there is nothing else to count.
        if (!__syncthreads_or(own.masked + own.nonfinite > 0)) {
            if (t >= MASKED && t < COUNT) out[t * a.tiles] = t == FIRST ? NONE : 0;
            continue;
        }
        const u64 counted[7] = {own.masked, own.nan_x, own.nan_y, own.inf_x, own.inf_y, own.nonfinite,
                                own.first == 0xffffffffu ? NONE : (u64)start + own.first};
#pragma unroll
        for (int w = 0; w < 7; w++) lanes[w][t] = counted[w];
        __syncthreads();
        for (u32 half = THREADS / 2; half > 0; half /= 2) {
            if (t < half)
#pragma unroll
                for (int w = 0; w < 7; w++) lanes[w][t] = both(MASKED + w, lanes[w][t], lanes[w][t + half]);
            __syncthreads();
        }
        if (t < 7) out[(MASKED + t) * a.tiles] = lanes[t][0];
        __syncthreads();
    }
}

#define COMPARE(name, X, Y)                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, LEAST) name(const CompareArgs a) { \
        compare_tiles<X, Y>(a);                                                                 \
    }
COMPARE(compare_f32_f32, F32, F32)
COMPARE(compare_f32_bf16, F32, Bf16)
COMPARE(compare_bf16_f32, Bf16, F32)
COMPARE(compare_bf16_bf16, Bf16, Bf16)

// Tiles as one record: block w makes word w, and that of the largest distance its place too.
extern "C" __global__ void __launch_bounds__(THREADS) compare_finish(const CompareArgs a) {
    __shared__ u64 values[THREADS], places[THREADS];
    const int word = (int)blockIdx.x;
    const u32 t = threadIdx.x;
    if (word == MAX_AT) return;
    const u64* from = (const u64*)a.partial + word * a.tiles;
    const u64* from_at = (const u64*)a.partial + MAX_AT * a.tiles;
    u64 v = word == FIRST ? NONE : 0, at = NONE;
    for (long long i = t; i < a.tiles; i += THREADS) {
        const u64 next = from[i];
        // Tiles come in order: of two the same, the first stays.
        if (word == MAX_D) {
            at = next > v ? from_at[i] : at;
            v = next > v ? next : v;
        } else {
            v = both(word, v, next);
        }
    }
    values[t] = v;
    places[t] = at;
    __syncthreads();
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            const u64 b = values[t + half];
            if (word != MAX_D) {
                values[t] = both(word, values[t], b);
            } else if (b > values[t] || (b == values[t] && places[t + half] < places[t])) {
                values[t] = b;
                places[t] = places[t + half];
            }
        }
        __syncthreads();
    }
    if (t == 0) {
        ((u64*)a.record)[word] = values[0];
        if (word == MAX_D) ((u64*)a.record)[MAX_AT] = places[0];
    }
}

// How fast the device reads both tensors and does nothing with them: the ceiling. One word a thread into `partial`.
extern "C" __global__ void __launch_bounds__(512) read_rate(const CompareArgs a) {
    const uint4* sides[2] = {(const uint4*)a.x, (const uint4*)a.y};
    const long long stride = (long long)gridDim.x * 512;
    u32 seen = 0;
    for (long long i = (long long)blockIdx.x * 512 + threadIdx.x; i < a.n; i += stride * 4) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j].x = v[j].y = v[j].z = v[j].w = 0;
            if (i + j / 2 * stride < a.n) v[j] = sides[j % 2][i + j / 2 * stride];
        }
#pragma unroll
        for (int j = 0; j < 8; j++) seen ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    ((u32*)a.partial)[(long long)blockIdx.x * 512 + threadIdx.x] = seen;
}
