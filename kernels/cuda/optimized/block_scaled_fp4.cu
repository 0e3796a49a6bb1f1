// K4 with the block-scaled instructions of sm_120a (patch mxfp4-moe with act=mxfp8): E4M3 activations with an E8M0 scale for 32 channels
// against E2M1 weights with their E8M0 scales, both scales applied by the tensor core. Compiled and looked at, never run: no
// device with these instructions has been at hand, so nothing is claimed of its results.
//
// One warp makes 16 rows of weights by 8 tokens of one expert: the plainest use of the instruction. Codes of a weight stand in bytes of
// their own for this instruction, in bits 2..5.
#include "ptx.cuh"

typedef unsigned char u8;

struct BlockScaledArgs {
    const u8* x;         // [tokens, k] E4M3
    const u8* x_scales;  // [tokens, k / 32] E8M0
    const u8* w;         // [rows, k / 2] E2M1, low nibble first
    const u8* w_scales;  // [rows, k / 32] E8M0
    float* out;          // [tokens, rows]
    int tokens, rows, k;
};

// Four codes of 16 bits to four bytes, each code in bits 2..5.
DEVICE u32 padded(u32 four) { return (four & 0xfu) << 2 | (four & 0xf0u) << 6 | (four & 0xf00u) << 10 | (four & 0xf000u) << 14; }

// d += (a scale_a)(b scale_b): m16n8k32; a: rows g, g+8, bytes 4t.. and 16+4t..; b: column g. Lanes with t = 0 and 1 of a quad give the
// scales of rows g and g+8, those with t = 0 that of column g.
DEVICE void mma_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 scale_a, u32 scale_b) {
    asm volatile(
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e4m3.f32.ue8m0 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, %10, {0, 0}, %11, {0, 0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a), "r"(scale_b));
}

// Grid: (tokens / 8, rows / 16), 32 threads; rows a multiple of 16, k of 32.
extern "C" __global__ void __launch_bounds__(32) block_scaled_product(BlockScaledArgs a) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int row = blockIdx.y * 16 + g, token = min(blockIdx.x * 8 + g, a.tokens - 1);
    float d[4] = {};
    for (int k = 0; k < a.k; k += 32) {
        u32 w[4], x[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const u8* from = a.w + (long long)(row + r * 8) * (a.k / 2) + (k + half * 16 + t * 4) / 2;
                w[half * 2 + r] = padded(*(const unsigned short*)from);
            }
            x[half] = *(const u32*)(a.x + (long long)token * a.k + k + half * 16 + t * 4);
        }
        const u32 scale_a = a.w_scales[(long long)(row + (t & 1) * 8) * (a.k / 32) + k / 32];
        const u32 scale_b = a.x_scales[(long long)token * (a.k / 32) + k / 32];
        mma_scaled(d, w, x, scale_a, scale_b);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int to = blockIdx.x * 8 + t * 2 + (i & 1);
        if (to < a.tokens) a.out[(long long)to * a.rows + row + (i >> 1) * 8] = d[i];
    }
}
