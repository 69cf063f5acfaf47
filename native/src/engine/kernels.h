// Kernels of a step besides matrix products and attention: norms, activations, top logits.
//
// Every kernel processes one row; its result does not depend on other rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cassandra {

constexpr int BEST = 4;  // top logits kept per row

// Activation of a feed-forward layer, by number (native/models/config.py).
enum Activation { SILU, GELU, ACTIVATIONS };  // GELU: the tanh approximation

// The largest logits, in descending order, the lowest index first among equals; -1 for unused
// entries. Undefined if any logit is not finite.
struct Top {
    float value[BEST];
    int32_t index[BEST];
    bool finite;

    static Top none() {
        return {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {-1, -1, -1, -1}, true};
    }
    // Add a logit whose index is larger than all before.
    void add(float logit, int32_t at) {
        if (!(logit > value[BEST - 1])) return;
        int place = BEST - 1;
        for (; place > 0 && logit > value[place - 1]; --place) {
            value[place] = value[place - 1];
            index[place] = index[place - 1];
        }
        value[place] = logit;
        index[place] = at;
    }
    float margin() const { return value[0] - value[1]; }
};

struct EngineKernels {
    // out = x / sqrt(mean(x^2) + epsilon) * weight; may run in place.
    void (*norm)(const float* x, const float* weight, int count, float epsilon, float* out);
    // activation(gate) * up
    void (*gate[ACTIVATIONS])(const float* gate, const float* up, int count, float* out);
    // bound * tanh(x / bound), in place; infinities become NaN.
    void (*cap)(float* x, int count, float bound);
    // Return the top logits; the first logit has the index `first`.
    Top (*top)(const float* logits, int count, int first);
};

namespace portable {
extern const EngineKernels engine_kernels;
}
namespace avx2 {
extern const EngineKernels engine_kernels;
}
namespace avx512 {
extern const EngineKernels engine_kernels;
}
namespace neon {
extern const EngineKernels engine_kernels;
}

}  // namespace cassandra
