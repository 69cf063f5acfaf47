// The kernels of engine/kernels.h, compiled once for each instruction set.

#include <cmath>

#include "common/vector16.h"
#include "engine/kernels.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

// The last, partial vector of a run of floats; what is past its end is `fill`.
inline V16 load_part(const float* p, int count, float fill) {
    float lane[16];
    for (int i = 0; i < 16; ++i) lane[i] = i < count ? p[i] : fill;
    return load(lane);
}

inline void store_part(float* p, int count, V16 a) {
    float lane[16];
    store(lane, a);
    for (int i = 0; i < count; ++i) p[i] = lane[i];
}

float square_sum(const float* x, int count) {
    V16 total = set(0.0f);
    int i = 0;
    for (; i + 16 <= count; i += 16) total = madd(load(x + i), load(x + i), total);
    if (i < count) {
        const V16 rest = load_part(x + i, count - i, 0.0f);
        total = madd(rest, rest, total);
    }
    return sum(total);
}

void norm(const float* x, const float* weight, int count, float epsilon, float* out) {
    const float mean = square_sum(x, count) / static_cast<float>(count);
    const float scale = 1.0f / std::sqrt(mean + epsilon);
    const V16 scales = set(scale);
    int i = 0;
    for (; i + 16 <= count; i += 16)
        store(out + i, mul(mul(load(x + i), scales), load(weight + i)));
    for (; i < count; ++i) out[i] = x[i] * scale * weight[i];
}

inline V16 swiglu(V16 gate, V16 up) {
    const V16 one = set(1.0f);
    const V16 negated = sub(set(0.0f), gate);
    return mul(div(gate, add(one, exponential(negated))), up);
}

void swiglu_run(const float* gate, const float* up, int count, float* out) {
    int i = 0;
    for (; i + 16 <= count; i += 16) store(out + i, swiglu(load(gate + i), load(up + i)));
    if (i == count) return;
    const int rest = count - i;
    const V16 last = swiglu(load_part(gate + i, rest, 0.0f), load_part(up + i, rest, 0.0f));
    store_part(out + i, rest, last);
}

// Scores of all places, 16 at a time: a lane is a place, so nothing is summed across lanes. Then
// those of the pass are put in the order of positions.
template <int N> void score(const Attention& task, int stride) {
    for (int block = 0; block * 16 < task.places(); ++block) {
        const uint16_t* keys = task.keys + static_cast<size_t>(block) * 16 * task.size;
        V16 even[N], odd[N];
        for (int h = 0; h < N; ++h) even[h] = odd[h] = set(0.0f);
        int d = 0;
        for (; d + 2 <= task.size; d += 2) {
            const V16 first = load_bf16(keys + 16 * d), second = load_bf16(keys + 16 * d + 16);
            for (int h = 0; h < N; ++h) {
                const float* query = task.queries + h * task.size + d;
                even[h] = madd(first, set(query[0]), even[h]);
                odd[h] = madd(second, set(query[1]), odd[h]);
            }
        }
        for (int h = 0; h < N; ++h)
            store(task.scores + h * stride + 16 * block, add(even[h], odd[h]));
    }
    for (int h = 0; h < N; ++h) {
        float* scores = task.scores + h * stride + task.base;
        for (int i = 0; i < task.length - task.base; ++i) scores[i] = scores[task.path[i]];
    }
}

// Scores to weights; returns one over their sum. What is past `length` becomes 0.
inline float soften(float* scores, int length) {
    const int whole = length / 16 * 16;
    for (int i = length; i < (length + 15) / 16 * 16; ++i) scores[i] = -1e30f;
    V16 top = set(-1e30f);
    for (int i = 0; i < length; i += 16) top = max(top, load(scores + i));
    const V16 shift = set(largest(top));
    V16 total = set(0.0f);
    for (int i = 0; i < whole; i += 16) {
        const V16 weight = exponential(sub(load(scores + i), shift));
        store(scores + i, weight);
        total = add(total, weight);
    }
    if (whole < length) {
        float lane[16];
        store(lane, exponential(sub(load(scores + whole), shift)));
        for (int i = length - whole; i < 16; ++i) lane[i] = 0.0f;
        store(scores + whole, load(lane));
        total = add(total, load(lane));
    }
    return 1.0f / sum(total);
}

// Weighted sums of `16 * vectors` dimensions from `start` on.
template <int N, int Vectors>
void blend(const Attention& task, int stride, int start, const float* inverse) {
    V16 total[N][Vectors];
    for (int h = 0; h < N; ++h)
        for (int v = 0; v < Vectors; ++v) total[h][v] = set(0.0f);
    for (int position = 0; position < task.length; ++position) {
        const uint16_t* row =
            task.values + static_cast<size_t>(task.place(position)) * task.padded + start;
        V16 value[Vectors];
        for (int v = 0; v < Vectors; ++v) value[v] = load_bf16(row + 16 * v);
        for (int h = 0; h < N; ++h) {
            const V16 weight = set(task.scores[h * stride + position]);
            for (int v = 0; v < Vectors; ++v) total[h][v] = madd(value[v], weight, total[h][v]);
        }
    }
    for (int h = 0; h < N; ++h)
        for (int v = 0; v < Vectors; ++v) {
            const int at = start + 16 * v, left = task.size - at;
            const V16 scaled = mul(total[h][v], set(inverse[h]));
            if (left >= 16)
                store(task.out + h * task.size + at, scaled);
            else
                store_part(task.out + h * task.size + at, left, scaled);
        }
}

template <int N> void attend(const Attention& task) {
    const int stride = (task.places() + 15) / 16 * 16;
    score<N>(task, stride);
    float inverse[N];
    for (int h = 0; h < N; ++h) inverse[h] = soften(task.scores + h * stride, task.length);
    int start = 0;
    for (; start + 64 <= task.padded; start += 64) blend<N, 4>(task, stride, start, inverse);
    for (; start < task.padded; start += 16) blend<N, 1>(task, stride, start, inverse);
}

void attend_heads(const Attention& task) {
    switch (task.heads) {
        case 1: return attend<1>(task);
        case 2: return attend<2>(task);
        case 3: return attend<3>(task);
        default: return attend<4>(task);
    }
}

// Zero times a number that is not finite is NaN, and stays so in a sum.
bool all_finite(const float* x, int count) {
    const V16 zero = set(0.0f);
    V16 total = zero;
    int i = 0;
    for (; i + 16 <= count; i += 16) total = madd(load(x + i), zero, total);
    return sum(madd(load_part(x + i, count - i, 0.0f), zero, total)) == 0.0f;
}

// Vectors are looked at one by one only if a lane beats the last of the best so far.
Top top(const float* logits, int count, int first) {
    Top found = Top::none();
    found.finite = all_finite(logits, count);
    int i = 0;
    for (; i + 64 <= count; i += 64) {
        const V16 a = max(load(logits + i), load(logits + i + 16));
        const V16 b = max(load(logits + i + 32), load(logits + i + 48));
        if (!any_above(max(a, b), found.value[BEST - 1])) continue;
        for (int j = i; j < i + 64; ++j) found.add(logits[j], first + j);
    }
    for (; i < count; ++i) found.add(logits[i], first + i);
    return found;
}

}  // namespace

const EngineKernels engine_kernels = {norm, swiglu_run, attend_heads, top};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
