// What a step computes beside products of matrices and attention: norms, activations, the best
// logit.
//
// Every kernel treats one row; what it does with it does not depend on other rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cassandra {

constexpr int BEST = 4;  // logits that are kept of a row

// Of a feed-forward layer, by number (native/models/config.py).
enum Activation { SILU, GELU, ACTIVATIONS };  // the approximation of GELU by tanh

// The largest logits, the largest first and the lowest index first among equals; -1 where there are
// not as many. Meaningless if not all logits are finite.
struct Top {
    float value[BEST];
    int32_t index[BEST];
    bool finite;

    static Top none() {
        return {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {-1, -1, -1, -1}, true};
    }
    // Takes a logit whose index is larger than all so far.
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
    // out = x / sqrt(mean(x^2) + epsilon) * weight; in place is fine.
    void (*norm)(const float* x, const float* weight, int count, float epsilon, float* out);
    // activation(gate) * up
    void (*gate[ACTIVATIONS])(const float* gate, const float* up, int count, float* out);
    // bound * tanh(x / bound), in place; what is not finite becomes NaN.
    void (*cap)(float* x, int count, float bound);
    // Of logits whose first has the index `first`.
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

}  // namespace cassandra
