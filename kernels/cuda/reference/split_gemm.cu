// c[m,n] = sum over k of a[m,k] w[n,k], one thread an output, in order of K. ACC is the type of the sum.
typedef unsigned short bf16;

struct GemmArgs {
    const float* a;  // [m, k]
    bf16* terms;     // not used here
    const bf16* w;   // [n, k]
    float* c;        // [m, n]
    int m, n, k;
};

extern "C" __global__ void split_gemm(GemmArgs g) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)g.m * g.n) return;
    const float* a = g.a + at / g.n * g.k;
    const bf16* w = g.w + at % g.n * g.k;
    ACC sum = 0;
    for (int k = 0; k < g.k; k++) sum += (ACC)a[k] * (ACC)__uint_as_float((unsigned)w[k] << 16);
    g.c[at] = (float)sum;
}
