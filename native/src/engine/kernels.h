// What a step computes beside the products of matrices: norms, attention, activations, the best
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

// Query heads that share keys and values, of one row.
//
// Positions from `base` on are those of the row's pass. There the keys and values of position
// base + i are at place base + path[i]: the row sees those of the rows above it in the tree.
struct Attention {
    const float* queries;    // [heads, size], rotated and scaled
    int heads;               // 1..4
    const uint16_t* keys;    // BF16 [places / 16, size, 16]
    const uint16_t* values;  // BF16 [places, padded]
    int first;               // position that the row sees first
    int length;              // above the last one that it sees, at least first + 1
    int base;                // below length
    const int32_t* path;     // [length - base], ascending, path[i] >= i
    int size;                // of a head
    int padded;              // size, up to a multiple of 16
    float cap;               // of scores; 0: none
    float* scores;           // room for [heads, places up to a multiple of 16]
    float* out;              // [heads, size]

    int places() const { return base + path[length - 1 - base] + 1; }
    int place(int position) const {
        return position < base ? position : base + path[position - base];
    }
};

struct EngineKernels {
    // out = x / sqrt(mean(x^2) + epsilon) * weight; in place is fine.
    void (*norm)(const float* x, const float* weight, int count, float epsilon, float* out);
    // activation(gate) * up
    void (*gate[ACTIVATIONS])(const float* gate, const float* up, int count, float* out);
    void (*attend)(const Attention& task);
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
