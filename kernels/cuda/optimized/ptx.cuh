// The few machine operations that every optimized kernel is built of. Only instructions that sm_90 and sm_120 share: mma.sync,
// ldmatrix, cp.async. Tensor cores add the 16 products of a step and the accumulator with truncation toward zero: what
// must be exact is taken out of the accumulator often (see PROMOTE where a kernel has it).
#pragma once

typedef unsigned short bf16;  // the bits
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
#define INFINITY __int_as_float(0x7f800000)

// d[16x8] += a[16x16] b[16x8]; bf16 in, f32 out. Lane 4g+t holds a: rows g, g+8, columns 2t.. and 2t+8..; b: column g,
// rows 2t.. and 2t+8..; d: rows g, g+8, columns 2t, 2t+1.
DEVICE void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same from a zero accumulator.
DEVICE void mma_fresh(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

// Where in shared memory.
DEVICE u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Four 8x8 matrices of 16-bit values; lane 8i+j gives the address of row j of matrix i.
DEVICE void ldmatrix_at(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

DEVICE void ldmatrix(u32 (&r)[4], const void* p) { ldmatrix_at(r, shared_at(p)); }

// The same, each matrix transposed.
DEVICE void ldmatrix_trans(u32 (&r)[4], const void* p) {
    u32 at = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// 16 bytes from global to shared memory, in the background; zeros, and no read, where `valid` is false.
DEVICE void cp_async(void* to, const void* from, bool valid) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(bytes));
}

// The same for BYTES of 4, 8 or 16, through the L1 cache.
template <int BYTES>
DEVICE void cp_async_few(void* to, const void* from, bool valid) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    int bytes = valid ? BYTES : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(at), "l"(from), "n"(BYTES), "r"(bytes));
}

DEVICE void cp_commit() { asm volatile("cp.async.commit_group;"); }

// Waits until at most N of this thread's groups are still on their way.
template <int N>
DEVICE void cp_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N)); }

// The same value, but nothing computed from it is kept over the rounds of a loop: registers are dearer there than a few additions.
DEVICE int afresh(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

// Two f32 to bf16, nearest even; `lo` is the lower half.
DEVICE u32 pack_bf16(float lo, float hi) {
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}

// Products of two pairs of bf16, nearest even; a subnormal counts.
DEVICE u32 times_bf16(u32 a, u32 b) {
    u32 d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

// Two E4M3 codes to two f16.
DEVICE u32 wide_codes(u32 two) {
    u32 d;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"((unsigned short)two));
    return d;
}

// The larger; a NaN stays one.
DEVICE float max_nan(float a, float b) {
    float d;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}

DEVICE float low_f16(u32 pair) {
    float d;
    asm("{.reg .f16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, lo;}" : "=f"(d) : "r"(pair));
    return d;
}

DEVICE float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// 2^x, relative error below 2^-22; 2^-inf = 0.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Programmatic launches: a kernel that was launched to overlap the one before it waits here until that one is done and its writes can
// be seen; `let_next` allows the next one to take up its place. Without an overlapping launch both do nothing.
DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE void let_next() { asm volatile("griddepcontrol.launch_dependents;"); }
