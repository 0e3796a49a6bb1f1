// mHC coefficients (spec 2.3), one thread an output, the sums in order of K. ACC is the type of the sums: float for the
// naive f32 counterpart, double for the yardstick of its errors.
typedef unsigned short bf16;

struct MhcArgs {
    const bf16* x;         // [tokens, width] bf16
    const bf16* fn_terms;  // not used here
    const float* fn;       // [24, width] f32
    const float* base;     // [24]
    const float* scale;    // [3]
    float* partial;        // not used here
    float* mixes;          // [tokens, 24]
    float* sumsq;          // [tokens]
    float* coefficients;   // [tokens, 24]: pre, post, comb
    int tokens, width, splits, iterations;
    float rms_eps, hc_eps;
};

// One thread a (token, row of fn), row 24 is the sum of squares; 25 * tokens threads.
extern "C" __global__ void mhc_product(MhcArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= 25LL * a.tokens) return;
    int token = (int)(at / 25), row = (int)(at % 25);
    const bf16* x = a.x + (long long)token * a.width;
    ACC sum = 0, square = 0;
    for (int k = 0; k < a.width; k++) {
        ACC v = (ACC)__uint_as_float((unsigned)x[k] << 16);
        square += v * v;
        if (row < 24) sum += v * (ACC)a.fn[(long long)row * a.width + k];
    }
    if (row == 24) {
        a.sumsq[token] = (float)square;
        return;
    }
    ACC mean = square / (ACC)a.width + (ACC)a.rms_eps;
    a.mixes[token * 24 + row] = (float)(sum / sqrt(mean));
}

// One thread a token, from the mixes of the kernel above.
extern "C" __global__ void mhc_finish(MhcArgs a) {
    int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= a.tokens) return;
    const float* m = a.mixes + token * 24;
    float* out = a.coefficients + token * 24;
    ACC eps = a.hc_eps;
    for (int j = 0; j < 4; j++) {
        ACC pre = (ACC)m[j] * (ACC)a.scale[0] + (ACC)a.base[j], post = (ACC)m[4 + j] * (ACC)a.scale[1] + (ACC)a.base[4 + j];
        out[j] = (float)(1 / (1 + exp(-pre)) + eps);
        out[4 + j] = (float)(2 / (1 + exp(-post)));
    }
    ACC c[4][4];
    for (int j = 0; j < 4; j++) {
        ACC top = -1e30f, den = 0;
        for (int k = 0; k < 4; k++) {
            c[j][k] = (ACC)m[8 + 4 * j + k] * (ACC)a.scale[2] + (ACC)a.base[8 + 4 * j + k];
            top = c[j][k] > top ? c[j][k] : top;
        }
        for (int k = 0; k < 4; k++) den += c[j][k] = exp(c[j][k] - top);
        for (int k = 0; k < 4; k++) c[j][k] = c[j][k] / den + eps;
    }
    for (int i = 0; i < a.iterations; i++) {
        for (int j = 0; j < 4 && i > 0; j++) {
            ACC row = c[j][0] + c[j][1] + c[j][2] + c[j][3] + eps;
            for (int k = 0; k < 4; k++) c[j][k] /= row;
        }
        for (int k = 0; k < 4; k++) {
            ACC column = c[0][k] + c[1][k] + c[2][k] + c[3][k] + eps;
            for (int j = 0; j < 4; j++) c[j][k] /= column;
        }
    }
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++) out[8 + 4 * j + k] = (float)c[j][k];
}
