// The kernels of engine/kernels.h, compiled once for each instruction set.

#include <cmath>

#include "common/vector16.h"
#include "engine/kernels.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

// Load the last, partial vector of a run of floats; `fill` pads it.
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

void cap(float* x, int count, float bound) {
    int i = 0;
    for (; i + 16 <= count; i += 16) store(x + i, soft_cap(load(x + i), set(bound)));
    if (i < count)
        store_part(x + i, count - i, soft_cap(load_part(x + i, count - i, 0.0f), set(bound)));
}

// Zero times a number that is not finite is NaN, which a sum preserves.
bool all_finite(const float* x, int count) {
    const V16 zero = set(0.0f);
    V16 total = zero;
    int i = 0;
    for (; i + 16 <= count; i += 16) total = madd(load(x + i), zero, total);
    return sum(madd(load_part(x + i, count - i, 0.0f), zero, total)) == 0.0f;
}

// Lanes are compared one by one only if one exceeds the last of the current top logits.
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

const EngineKernels engine_kernels = {norm, {gate_run<silu>, gate_run<gelu>}, cap, top};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
