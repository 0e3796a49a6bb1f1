// Sketches of rows that lie here: trace/src/sketch/row.rs to the bit, in its order of sums. Of each block of 1024 values a thread
// takes two of its 16 lanes; then a thread a row adds lanes and blocks. Nothing is fused.
#include "golden.cuh"

#define SKETCH_BLOCK 1024
#define SKETCH_SUMS 16
#define SKETCH_PAIRS 8
#define SKETCH_WORDS 21

// Rows of one tensor among those of a launch: they are numbered through, and so are their blocks.
struct SketchJob {
    unsigned long long at;
    long long width;
    long long first_row;
    long long first_block;
    long long ragged;
};

// Of one block: what each lane, or pair of lanes, came to.
struct SketchPart {
    float squares[SKETCH_SUMS];
    float sums[SKETCH_SUMS];
    unsigned largest[SKETCH_PAIRS];
    unsigned long long pairs[SKETCH_PAIRS];
};

// splitmix64's last step.
__device__ __forceinline__ unsigned long long sketch_mixed(unsigned long long x) {
    unsigned long long z = x + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ __forceinline__ unsigned sketch_bits(const float* v) {
    return *(const unsigned*)v;
}

__device__ __forceinline__ float sketch_float(unsigned bits) {
    return __int_as_float((int)bits);
}

// Sign of a row's block: the first one has none.
__device__ __forceinline__ double sketch_turn(long long block) {
    return block == 0 || sketch_mixed(~(unsigned long long)block) >> 63 == 0 ? 1.0 : -1.0;
}

__device__ __forceinline__ long long sketch_blocks(long long width) {
    return width <= SKETCH_BLOCK ? 1 : (width + SKETCH_BLOCK - 1) / SKETCH_BLOCK;
}

// The job that row i belongs to.
__device__ __forceinline__ const SketchJob* sketch_job_of_row(const SketchJob* jobs, long long n, long long i) {
    long long low = 0, high = n;
    while (high - low > 1) {
        const long long mid = (low + high) / 2;
        if (jobs[mid].first_row <= i) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return jobs + low;
}

// The same of block i.
__device__ __forceinline__ const SketchJob* sketch_job_of_block(const SketchJob* jobs, long long n, long long i) {
    long long low = 0, high = n;
    while (high - low > 1) {
        const long long mid = (low + high) / 2;
        if (jobs[mid].first_block <= i) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return jobs + low;
}

// Bits that turn the signs of a block's values, and what is added to the values' own before they are multiplied. p: [1024,2].
extern "C" __global__ void golden_sketch_table(const Args a) {
    const long long i = thread_index();
    if (i >= SKETCH_BLOCK) {
        return;
    }
    unsigned* out = (unsigned*)a.p[0] + 2 * i;
    out[0] = (unsigned)sketch_mixed((unsigned long long)i) & 0x80000000u;
    out[1] = (unsigned)(sketch_mixed(~(unsigned long long)i) >> 32);
}

// How many values of each row count. p: jobs, lengths [rows]; n: jobs, rows.
extern "C" __global__ void golden_sketch_lengths(const Args a) {
    const long long i = thread_index();
    if (i >= a.n[1]) {
        return;
    }
    const SketchJob* job = sketch_job_of_row((const SketchJob*)a.p[0], a.n[0], i);
    const float* row = (const float*)job->at + (i - job->first_row) * job->width;
    long long n = job->width;
    if (job->ragged != 0) {
        // Eight at a time, so that one is not waited for before the next.
        for (bool hidden = true; hidden && n >= 8; n -= hidden ? 8 : 0) {
#pragma unroll
            for (int j = 1; j <= 8; ++j) {
                hidden = hidden & (sketch_bits(row + n - j) == 0xff800000u);
            }
        }
        while (n > 0 && sketch_bits(row + n - 1) == 0xff800000u) {
            --n;
        }
    }
    ((unsigned*)a.p[1])[i] = (unsigned)n;
}

// Two lanes of a block. What is missing at the end of a line of 16 is zero. p: jobs, lengths [rows], table [1024,2], parts
// [blocks]; n: jobs, blocks.
extern "C" __global__ void golden_sketch_lanes(const Args a) {
    const long long i = thread_index(), block = i / SKETCH_PAIRS, pair = i % SKETCH_PAIRS;
    if (block >= a.n[1]) {
        return;
    }
    const SketchJob* job = sketch_job_of_block((const SketchJob*)a.p[0], a.n[0], block);
    const long long blocks = sketch_blocks(job->width);
    const long long row = (block - job->first_block) / blocks, number = (block - job->first_block) % blocks;
    const float* v = (const float*)job->at + row * job->width + number * SKETCH_BLOCK;
    const unsigned* table = u32s(a, 2);
    long long n = (long long)u32s(a, 1)[job->first_row + row] - number * SKETCH_BLOCK;
    n = n < 0 ? 0 : n > SKETCH_BLOCK ? SKETCH_BLOCK : n;
    float squares0 = 0.0f, squares1 = 0.0f, sums0 = 0.0f, sums1 = 0.0f;
    unsigned largest = 0;
    unsigned long long pairs = 0;
    for (long long line = 0; line < n; line += SKETCH_SUMS) {
        const long long at = line + 2 * pair;
        const unsigned b0 = at < n ? sketch_bits(v + at) : 0u, b1 = at + 1 < n ? sketch_bits(v + at + 1) : 0u;
        const float v0 = sketch_float(b0), v1 = sketch_float(b1);
        squares0 = squares0 + v0 * v0;
        squares1 = squares1 + v1 * v1;
        sums0 = sums0 + sketch_float(b0 ^ table[2 * at]);
        sums1 = sums1 + sketch_float(b1 ^ table[2 * at + 2]);
        const unsigned size0 = b0 & 0x7fffffffu, size1 = b1 & 0x7fffffffu;
        const unsigned size = size0 > size1 ? size0 : size1;
        largest = size > largest ? size : largest;
        const unsigned long long x = (unsigned)(b0 + table[2 * at + 1]), y = (unsigned)(b1 + table[2 * at + 3]);
        pairs += x * y + (y << 32 | x);
    }
    SketchPart* out = (SketchPart*)a.p[3] + block;
    out->squares[2 * pair] = squares0;
    out->squares[2 * pair + 1] = squares1;
    out->sums[2 * pair] = sums0;
    out->sums[2 * pair + 1] = sums1;
    out->largest[pair] = largest;
    out->pairs[pair] = pairs;
}

// Lanes as one number: i and i + 8, then i and i + 4, and so on.
__device__ __forceinline__ double sketch_added(const float* lanes) {
    double wide[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        wide[i] = (double)lanes[i] + (double)lanes[i + 8];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        wide[i] = wide[i] + wide[i + 4];
    }
    return (wide[0] + wide[2]) + (wide[1] + wide[3]);
}

// Sketches, 21 words each: of a row a thread for each signed sum, and one for everything else. p: jobs, lengths [rows], table
// [1024,2], parts [blocks], lines [rows,21]; n: jobs, rows.
extern "C" __global__ void golden_sketch_rows(const Args a) {
    const long long i = thread_index() / (SKETCH_SUMS + 1), j = thread_index() % (SKETCH_SUMS + 1);
    if (i >= a.n[1]) {
        return;
    }
    const SketchJob* job = sketch_job_of_row((const SketchJob*)a.p[0], a.n[0], i);
    const long long row = i - job->first_row, n = u32s(a, 1)[i];
    const SketchPart* parts = (const SketchPart*)a.p[3] + job->first_block + row * sketch_blocks(job->width);
    const long long blocks = sketch_blocks(n);
    const float* v = (const float*)job->at + row * job->width;
    const unsigned* table = u32s(a, 2);
    unsigned* out = (unsigned*)a.p[4] + SKETCH_WORDS * i;

    unsigned largest = 0;
#pragma unroll 4
    for (long long b = 0; b < blocks; ++b) {
#pragma unroll
        for (int p = 0; p < SKETCH_PAIRS; ++p) {
            largest = parts[b].largest[p] > largest ? parts[b].largest[p] : largest;
        }
    }
    // 2^-40 and 2^60: between them no square of such a row's largest values overflows or is lost. Otherwise something is not finite, or
    // f32 doesn't hold its squares: all of it once more in f64.
    const bool again = largest != 0 && (largest < (127u - 40u) << 23 || largest >= (127u + 60u) << 23);

    if (j < SKETCH_SUMS) {
        float sum = parts->sums[j];
        if (again) {
            double wide = 0.0;
            for (long long at = j; at < n; at += SKETCH_SUMS) {
                const unsigned bits = sketch_bits(v + at);
                if ((bits & 0x7fffffffu) < 0x7f800000u) {
                    const unsigned sign = table[2 * (at % SKETCH_BLOCK)];
                    wide = wide + sketch_turn(at / SKETCH_BLOCK) * (double)sketch_float(bits ^ sign);
                }
            }
            sum = (float)wide;
        } else if (blocks > 1) {
            double wide = (double)sum;
#pragma unroll 4
            for (long long b = 1; b < blocks; ++b) {
                wide = wide + sketch_turn(b) * (double)parts[b].sums[j];
            }
            sum = (float)wide;
        }
        ((float*)out)[2 + j] = sum;
        return;
    }

    double squares = 0.0;
    unsigned long long hash = (unsigned long long)n;
    for (long long b = 0; b < blocks; ++b) {
        const SketchPart* part = parts + b;
        // The first sum is what it is: nothing is added to it.
        squares = b == 0 ? sketch_added(part->squares) : squares + sketch_added(part->squares);
        unsigned long long pairs = 0;
        for (int p = 0; p < SKETCH_PAIRS; ++p) {
            pairs += part->pairs[p];
        }
        hash = sketch_mixed(hash ^ pairs);
    }
    unsigned nonfinite = 0;
    if (again) {
        squares = 0.0;
        largest = 0;
        for (long long at = 0; at < n; ++at) {
            const unsigned bits = sketch_bits(v + at), size = bits & 0x7fffffffu;
            if (size >= 0x7f800000u) {
                ++nonfinite;
            } else {
                const double value = (double)sketch_float(bits);
                squares = squares + value * value;
                largest = size > largest ? size : largest;
            }
        }
    }
    ((float*)out)[0] = (float)sqrt(squares);
    out[1] = largest;
    out[18] = nonfinite;
    out[19] = (unsigned)hash;
    out[20] = (unsigned)(hash >> 32);
}

// kept[at[i],:] = act[i,:]: activations of an expert where those of their rows lie together. p: act [S,I], the expert's rows [S] and
// behind them at [S], kept [.,I]; n: S, I.
extern "C" __global__ void golden_sketch_keep(const Args a) {
    const long long i = thread_index(), inner = a.n[1];
    if (i < a.n[0] * inner) {
        out32(a, 2)[(long long)u32s(a, 1)[a.n[0] + i / inner] * inner + i % inner] = f32s(a, 0)[i];
    }
}
