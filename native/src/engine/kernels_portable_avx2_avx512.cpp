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

// x * sigmoid(z)
inline V16 times_sigmoid(V16 x, V16 z) {
    return div(x, add(set(1.0f), exponential(sub(set(0.0f), z))));
}

inline V16 silu(V16 x) { return times_sigmoid(x, x); }

// x * (1 + tanh(u)) / 2 is x * sigmoid(2 u), with u = sqrt(2 / pi) * (x + 0.044715 * x^3).
inline V16 gelu(V16 x) {
    const V16 factor = madd(mul(x, x), set(7.13548163e-2f), set(1.59576912f));
    return times_sigmoid(x, mul(x, factor));
}

template <V16 (*activation)(V16)>
void gate_run(const float* gate, const float* up, int count, float* out) {
    int i = 0;
    for (; i + 16 <= count; i += 16) store(out + i, mul(activation(load(gate + i)), load(up + i)));
    if (i == count) return;
    const int rest = count - i;
    const V16 last = activation(load_part(gate + i, rest, 0.0f));
    store_part(out + i, rest, mul(last, load_part(up + i, rest, 0.0f)));
}

// Zero times what is not finite is NaN; tanh would hide it.
inline V16 soft_cap(V16 x, V16 bound) {
    const V16 one = set(1.0f), two = set(2.0f);
    const V16 power = exponential(mul(two, div(x, bound)));
    const V16 tanh = sub(one, div(two, add(power, one)));
    return madd(x, set(0.0f), mul(bound, tanh));
}

void cap(float* x, int count, float bound) {
    int i = 0;
    for (; i + 16 <= count; i += 16) store(x + i, soft_cap(load(x + i), set(bound)));
    if (i < count)
        store_part(x + i, count - i, soft_cap(load_part(x + i, count - i, 0.0f), set(bound)));
}

// Scores of all places that are seen, 16 at a time: a lane is a place, so nothing is summed across
// lanes. Then those of the pass are put in the order of positions.
template <int N> void score(const Attention& task, int stride) {
    const int start = (task.first < task.base ? task.first : task.base) / 16;
    for (int block = start; block * 16 < task.places(); ++block) {
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

// Lanes from first to last - 1; the others are 0.
inline V16 lanes(V16 a, int first, int last) {
    float lane[16];
    store(lane, a);
    for (int i = 0; i < 16; ++i) lane[i] = first <= i && i < last ? lane[i] : 0.0f;
    return load(lane);
}

// Scores of positions from `first` to before `length` to weights, those around them in their
// vectors to 0; returns one over their sum.
inline float soften(float* scores, int first, int length, float bound) {
    const int start = first / 16 * 16;
    if (bound > 0.0f)
        for (int i = start; i < length; i += 16)
            store(scores + i, soft_cap(load(scores + i), set(bound)));
    for (int i = start; i < first; ++i) scores[i] = -1e30f;
    for (int i = length; i < (length + 15) / 16 * 16; ++i) scores[i] = -1e30f;
    V16 top = set(-1e30f);
    for (int i = start; i < length; i += 16) top = max(top, load(scores + i));
    const V16 shift = set(largest(top));
    V16 total = set(0.0f);
    for (int i = start; i < length; i += 16) {
        V16 weight = exponential(sub(load(scores + i), shift));
        if (i < first || i + 16 > length) weight = lanes(weight, first - i, length - i);
        store(scores + i, weight);
        total = add(total, weight);
    }
    return 1.0f / sum(total);
}

// Weighted sums of `16 * vectors` dimensions from `start` on.
template <int N, int Vectors>
void blend(const Attention& task, int stride, int start, const float* inverse) {
    V16 total[N][Vectors];
    for (int h = 0; h < N; ++h)
        for (int v = 0; v < Vectors; ++v) total[h][v] = set(0.0f);
    for (int position = task.first; position < task.length; ++position) {
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
    for (int h = 0; h < N; ++h)
        inverse[h] = soften(task.scores + h * stride, task.first, task.length, task.cap);
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

const EngineKernels engine_kernels = {
    norm, {gate_run<silu>, gate_run<gelu>}, attend_heads, cap, top};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
