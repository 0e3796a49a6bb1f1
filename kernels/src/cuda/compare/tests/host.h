// Kernels with shared memory and barriers on a host: enough of CUDA for `cuda/diff/`. The threads of a block are threads of this
// process; blocks come one after the other, so that what is shared may be static.
#include <atomic>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <thread>
#include <vector>
struct Three {
    unsigned x, y, z;
};
struct float4 {
    float x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define UNROLL 4
#define LEAST 1
static thread_local Three threadIdx, blockIdx;
static Three gridDim;
static pthread_barrier_t karat_barrier;
static std::atomic<int> karat_any;
static inline void __syncthreads() {
    pthread_barrier_wait(&karat_barrier);
}
static inline int __syncthreads_or(int it) {
    if (it) karat_any = 1;
    __syncthreads();
    const int any = karat_any;
    __syncthreads();
    if (threadIdx.x == 0) karat_any = 0;
    __syncthreads();
    return any;
}
template <class To, class From>
static inline To karat_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline float __uint_as_float(unsigned v) {
    return karat_bits<float>(v);
}
static inline unsigned __float_as_uint(float v) {
    return karat_bits<unsigned>(v);
}
static inline double __longlong_as_double(long long v) {
    return karat_bits<double>(v);
}
static inline long long __double_as_longlong(double v) {
    return karat_bits<long long>(v);
}
struct KaratArgs {
    unsigned long long words[8];
};
extern "C" void karat_run(void (*kernel)(KaratArgs), unsigned grid, unsigned threads, KaratArgs args) {
    gridDim.x = grid;
    pthread_barrier_init(&karat_barrier, nullptr, threads);
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; t++)
        all.emplace_back([=] {
            threadIdx.x = t;
            for (unsigned b = 0; b < grid; b++) {
                blockIdx.x = b;
                kernel(args);
                __syncthreads();
            }
        });
    for (auto& it : all) it.join();
    pthread_barrier_destroy(&karat_barrier);
}
