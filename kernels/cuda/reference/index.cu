// Index scores (spec 2.8) from E4M3 codes and their exact selection, one thread an output, sums in order of dims and heads. ACC is
// the type of the sums. PRODUCT_BF16: each q.k is rounded to bf16, to nearest even, before relu, as that contract says. Every slot of the table is walked: those past the visible keys are -inf.
#define INFINITY __int_as_float(0x7f800000)

struct IndexArgs {
    const unsigned char* q;     // [batch, 64, 128]
    const float* q_scale;       // [batch, 64]
    const float* weight;        // [batch, 64]
    const unsigned char* keys;  // [pages, page, 128]
    const float* key_scale;     // [pages, page]
    const int* table;           // [batch, table_pages]
    const int* visible;         // [batch]
    float* logits;              // [batch, table_pages * page]
    int batch, page, table_pages, pages;
};

// Sign, four bits of exponent with bias 7, three of mantissa; 0x7f is NaN.
static __device__ float e4m3(unsigned char code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = exponent == 0 ? mantissa * 0.001953125f : (8 + mantissa) * exp2f((float)(exponent - 10));
    if ((code & 127) == 127) value = __int_as_float(0x7fc00000);
    return code & 128 ? -value : value;
}

// One thread a (sequence, key).
extern "C" __global__ void index_logits(IndexArgs a) {
    long long room = (long long)a.table_pages * a.page, at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= room * a.batch) return;
    long long sequence = at / room;
    int key = (int)(at % room);
    a.logits[at] = -INFINITY;
    if (key >= a.visible[sequence]) return;
    int page = a.table[sequence * a.table_pages + key / a.page];
    if (page < 0 || page >= a.pages) {
        a.logits[at] = 0;
        return;
    }
    long long slot = (long long)page * a.page + key % a.page;
    ACC sum = 0;
    for (int h = 0; h < 64; h++) {
        const unsigned char *q = a.q + (sequence * 64 + h) * 128, *k = a.keys + slot * 128;
        ACC product = 0;
        for (int d = 0; d < 128; d++) product += (ACC)e4m3(q[d]) * (ACC)e4m3(k[d]);
#if PRODUCT_BF16
        unsigned bits = __float_as_uint((float)product);
        bits += 0x7fff + (bits >> 16 & 1);
        product = (ACC)__uint_as_float(bits & 0xffff0000u);
#endif
        if (product < 0) product = 0;
        sum += product * (ACC)(a.weight[sequence * 64 + h] * a.q_scale[sequence * 64 + h]);
    }
    a.logits[at] = (float)(sum * (ACC)a.key_scale[slot]);
}

struct SelectArgs {
    const float* logits;  // [batch, room]
    const int* visible;   // [batch]
    unsigned* keys;       // not used here
    int* places;          // not used here
    int* chosen;          // [batch, topk], -1 before
    int batch, room, topk, chunks;
};

// One thread a (sequence, key): how many go before it decides whether it is chosen, how many of the chosen have a lower index where it
// stands. Quadratic, and plainly what the rule says.
extern "C" __global__ void select_rank(SelectArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)a.room * a.batch) return;
    long long sequence = at / a.room;
    int key = (int)(at % a.room), visible = a.visible[sequence], before = 0;
    if (key >= visible) return;
    const float* s = a.logits + sequence * a.room;
    for (int other = 0; other < visible; other++) before += s[other] > s[key] || (s[other] == s[key] && other < key);
    if (before >= a.topk) return;
    a.keys[sequence * a.room + key] = 1;
}

// One thread a sequence: lists the marked ones.
extern "C" __global__ void select_list(SelectArgs a) {
    long long sequence = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (sequence >= a.batch) return;
    int n = 0;
    for (int key = 0; key < a.room; key++)
        if (a.keys[sequence * a.room + key] == 1) a.chosen[sequence * a.topk + n++] = key;
    for (; n < a.topk; n++) a.chosen[sequence * a.topk + n] = -1;
}
