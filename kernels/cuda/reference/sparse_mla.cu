// Sparse MLA decode (spec 2.9), one thread an output, sums in order of keys. ACC is the type of the sums.
typedef unsigned short bf16;
#define INFINITY __int_as_float(0x7f800000)

struct MlaArgs {
    const bf16* q;      // [batch, 64, 512]
    const bf16* cache;  // [rows, 512]
    const int* chosen;  // [batch, keys]; negative or past the cache: no key
    const float* sink;  // [64]
    void* partial;      // not used here
    float* lse;         // not used here
    float* scores;      // [batch, 64, keys], -inf where there is no key
    void* out;          // [batch, 64, 512] f32
    int batch, keys, splits, rows;
    float scale;
};

static __device__ float value(bf16 bits) { return __uint_as_float((unsigned)bits << 16); }

// One thread a (sequence, head, key).
extern "C" __global__ void mla_scores(MlaArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= 64LL * a.batch * a.keys) return;
    long long row = at / a.keys, sequence = row / 64;
    int chosen = a.chosen[sequence * a.keys + at % a.keys];
    if (chosen < 0 || chosen >= a.rows) {
        a.scores[at] = -INFINITY;
        return;
    }
    const bf16 *q = a.q + row * 512, *k = a.cache + (long long)chosen * 512;
    ACC sum = 0;
    for (int d = 0; d < 512; d++) sum += (ACC)value(q[d]) * (ACC)value(k[d]);
    a.scores[at] = (float)(sum * (ACC)a.scale);
}

// One thread a (sequence, head, dim), after the scores.
extern "C" __global__ void mla_output(MlaArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= 64LL * a.batch * 512) return;
    long long row = at / 512, sequence = row / 64;
    int d = (int)(at % 512);
    const float* s = a.scores + row * a.keys;
    float top = a.sink[row % 64];
    for (int k = 0; k < a.keys; k++) top = s[k] > top ? s[k] : top;
    ACC den = exp((ACC)a.sink[row % 64] - (ACC)top), sum = 0;
    for (int k = 0; k < a.keys; k++) {
        int chosen = a.chosen[sequence * a.keys + k];
        if (chosen < 0 || chosen >= a.rows) continue;
        ACC p = exp((ACC)s[k] - (ACC)top);
        den += p;
        sum += p * (ACC)value(a.cache[(long long)chosen * 512 + d]);
    }
    ((float*)a.out)[at] = (float)(sum / den);
}
