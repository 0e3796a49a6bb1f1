// Compressor (spec 2.7), one thread an output, sums in order of K, slots and channels, nothing rounded in between but to f32. ACC is the type of the
// sums.
typedef unsigned short bf16;

struct CompressArgs {
    const bf16* x;       // [tokens, width]
    const bf16* w;       // [2 columns, width]
    const float* ape;    // [ratio, columns]
    const float* norm;   // [dims]
    const float* turns;  // [windows, rope / 2, 2]
    float* rows;         // [.., 2 columns]
    float* pooled;       // [windows, dims]
    float* scale;        // [windows]
    float* entries;      // [windows, dims]
    int tokens, width, columns, dims, ratio, rope;
    int base, first_token, first_window, windows;
    float eps;
};

// One thread a (token, output).
extern "C" __global__ void compress_project(CompressArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, token = at / (2 * a.columns), output = at % (2 * a.columns);
    if (token >= a.tokens) return;
    ACC sum = 0;
    for (int k = 0; k < a.width; k++)
        sum += (ACC)__uint_as_float((unsigned)a.x[token * a.width + k] << 16) * (ACC)__uint_as_float((unsigned)a.w[output * a.width + k] << 16);
    a.rows[(long long)(a.first_token - a.base) * 2 * a.columns + at] = (float)sum;
}

// One thread a (window, channel).
extern "C" __global__ void compress_pool(CompressArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)a.windows * a.dims) return;
    int window = a.first_window + (int)(at / a.dims), d = (int)(at % a.dims), series = a.columns / a.dims;
    ACC top = -1e30f, den = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < series; s++) {
            // With two series the first is that of the window before.
            int from = series == 2 && s == 0 ? window - 1 : window;
            if (from < 0) continue;
            for (int i = 0; i < a.ratio; i++) {
                const float* row = a.rows + ((long long)from * a.ratio + i - a.base) * 2 * a.columns + s * a.dims + d;
                ACC z = (ACC)row[a.columns] + (ACC)a.ape[i * a.columns + s * a.dims + d];
                if (pass == 0) {
                    top = z > top ? z : top;
                } else {
                    ACC e = exp(z - top);
                    den += e;
                    sum += e * (ACC)row[0];
                }
            }
        }
    a.pooled[at] = (float)(sum / den);
}

// One thread a window.
extern "C" __global__ void compress_norm(CompressArgs a) {
    long long window = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (window >= a.windows) return;
    ACC square = 0;
    for (int d = 0; d < a.dims; d++) square += (ACC)a.pooled[window * a.dims + d] * (ACC)a.pooled[window * a.dims + d];
    a.scale[window] = (float)(1 / sqrt(square / (ACC)a.dims + (ACC)a.eps));
}

// One thread a (window, channel).
extern "C" __global__ void compress_finish(CompressArgs a) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)a.windows * a.dims) return;
    long long window = at / a.dims;
    int d = (int)(at % a.dims), turned = d - (a.dims - a.rope);
    ACC own = (ACC)a.pooled[at] * (ACC)a.scale[window] * (ACC)a.norm[d];
    if (turned >= 0) {
        long long mate = window * a.dims + (d ^ 1);
        ACC other = (ACC)a.pooled[mate] * (ACC)a.scale[window] * (ACC)a.norm[d ^ 1];
        const float* turn = a.turns + (window * (a.rope / 2) + turned / 2) * 2;
        own = d & 1 ? other * (ACC)turn[1] + own * (ACC)turn[0] : own * (ACC)turn[0] - other * (ACC)turn[1];
    }
    a.entries[at] = (float)own;
}
