// Routed experts (spec 2.11) from FP4 codes, one thread an output, sums in order of K and of a token's picks by expert, nothing rounded in
// between but to f32. ACC is the type of the sums.
typedef unsigned short bf16;
typedef unsigned char u8;

struct MoeArgs {
    const bf16* x;           // [tokens, width]
    const int* expert;       // [tokens, picks]
    const float* weight;     // [tokens, picks]
    const u8* codes[3];      // gate, up [experts, inner, width / 2]; down [experts, width, inner / 2]
    const u8* scales[3];
    const float* global[3];  // [experts]
    int* count;              // not used here
    int* list;               // not used here
    float* act;              // [tokens * picks, inner]
    float* out;              // [tokens * picks, width]
    float* sum;              // [tokens, width]
    int tokens, picks, experts, width, inner;
    float limit;
};

// Sign, two bits of exponent with bias 1, one of mantissa.
static __device__ float e2m1(int code) {
    const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float v = 0.0f;
    for (int i = 0; i < 8; i++)
        if ((code & 7) == i) v = values[i];
    return code & 8 ? -v : v;
}

static __device__ float e4m3(u8 code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = exponent == 0 ? mantissa * 0.001953125f : (8 + mantissa) * exp2f((float)(exponent - 10));
    if ((code & 127) == 127) value = __int_as_float(0x7fc00000);
    return code & 128 ? -value : value;
}

static __device__ ACC weight_at(const MoeArgs& a, int matrix, int expert, long long rows, long long k, long long row, long long column) {
    long long at = (expert * rows + row) * k + column;
    int code = a.codes[matrix][at / 2] >> (column % 2 * 4) & 15;
    ACC scale = NVFP4 ? (ACC)e4m3(a.scales[matrix][at / 16]) * (ACC)a.global[matrix][expert]
                      : (ACC)exp2((double)((int)a.scales[matrix][at / 32] - 127));
    return (ACC)e2m1(code) * scale;
}

// One thread a (slot, row of gate and up).
extern "C" __global__ void moe_up(MoeArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, slot = at / a.inner, row = at % a.inner;
    if (slot >= (long long)a.tokens * a.picks) return;
    int expert = a.expert[slot];
    a.act[at] = 0;
    if (expert < 0 || expert >= a.experts) return;
    const bf16* x = a.x + slot / a.picks * a.width;
    ACC gate = 0, up = 0;
    for (int k = 0; k < a.width; k++) {
        ACC v = (ACC)__uint_as_float((unsigned)x[k] << 16);
        gate += v * weight_at(a, 0, expert, a.inner, a.width, row, k);
        up += v * weight_at(a, 1, expert, a.inner, a.width, row, k);
    }
    ACC limit = a.limit;
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    a.act[at] = (float)(gate / (1 + exp(-gate)) * up * (ACC)a.weight[slot]);
}

// One thread a (slot, row of down).
extern "C" __global__ void moe_down(MoeArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, slot = at / a.width, row = at % a.width;
    if (slot >= (long long)a.tokens * a.picks) return;
    int expert = a.expert[slot];
    a.out[at] = 0;
    if (expert < 0 || expert >= a.experts) return;
    ACC sum = 0;
    for (int k = 0; k < a.inner; k++) sum += (ACC)a.act[slot * a.inner + k] * weight_at(a, 2, expert, a.width, a.inner, row, k);
    a.out[at] = (float)sum;
}

// One thread a (token, channel).
extern "C" __global__ void moe_sum(MoeArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, token = at / a.width, channel = at % a.width;
    if (token >= a.tokens) return;
    ACC sum = 0;
    for (int e = 0; e < a.experts; e++)
        for (int p = 0; p < a.picks; p++)
            if (a.expert[token * a.picks + p] == e) sum += (ACC)a.out[(token * a.picks + p) * a.width + channel];
    a.sum[at] = (float)sum;
}
