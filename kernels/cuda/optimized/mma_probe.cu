// What one mma.sync makes of given operands, for every form that the kernels use and for E4M3. A warp computes a tile: 16 rows of a
// by 8 columns of b, `steps` instructions one after the other into the same accumulator, which starts as c. Nothing but mma.sync touches
// a number here.
#include "ptx.cuh"

struct ProbeArgs {
    const u32* a;    // [tiles, 16, steps * 8] words: two 16-bit values or four codes each, along K
    const u32* b;    // [tiles, 8, steps * 8]
    const float* c;  // [tiles, 16, 8]
    float* d;        // [tiles, 16, 8]
    int steps;
    int tiles;
};

struct Bf16 {
    static DEVICE void run(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { mma(d, a0, a1, a2, a3, b0, b1); }
};

struct F16 {
    static DEVICE void run(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};

struct E4m3 {
    static DEVICE void run(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};

// Lane 4g+t holds a: rows g, g+8, words t and t+4 of a step; b: column g, the same words; d: rows g, g+8, columns 2t, 2t+1.
template <typename Form>
DEVICE void probe(const ProbeArgs& p) {
    int tile = blockIdx.x * 4 + (threadIdx.x >> 5), g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    if (tile >= p.tiles) return;
    long long width = (long long)p.steps * 8;
    const u32* low = p.a + ((long long)tile * 16 + g) * width + t;
    const u32* high = low + 8 * width;
    const u32* column = p.b + ((long long)tile * 8 + g) * width + t;
    long long at = (long long)tile * 128 + g * 8 + t * 2;
    float d[4] = {p.c[at], p.c[at + 1], p.c[at + 64], p.c[at + 65]};
    for (int s = 0; s < p.steps; s++, low += 8, high += 8, column += 8)
        Form::run(d, low[0], high[0], low[4], high[4], column[0], column[4]);
    p.d[at] = d[0];
    p.d[at + 1] = d[1];
    p.d[at + 64] = d[2];
    p.d[at + 65] = d[3];
}

extern "C" __global__ void __launch_bounds__(128) mma_probe_bf16(ProbeArgs p) { probe<Bf16>(p); }
extern "C" __global__ void __launch_bounds__(128) mma_probe_f16(ProbeArgs p) { probe<F16>(p); }
extern "C" __global__ void __launch_bounds__(128) mma_probe_e4m3(ProbeArgs p) { probe<E4m3>(p); }
