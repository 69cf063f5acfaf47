// What a step computes beside the products of matrices: norms, attention, activations, the best
// logit.
//
// Every kernel treats one row; what it does with it does not depend on other rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cassandra {

// Largest logit, the lowest index first among equals, and the next largest value; meaningless if
// not all logits are finite.
struct TopTwo {
    float first;
    float second;
    int32_t index;
    bool finite;
};

// Query heads that share keys and values, of one row.
struct Attention {
    const float* queries;    // [heads, size], rotated and scaled
    int heads;               // 1..4
    const uint16_t* keys;    // BF16 [positions / 16, size, 16]
    const uint16_t* values;  // BF16 [positions, padded]
    int length;              // positions that the row sees, at least one
    int size;                // of a head
    int padded;              // size, up to a multiple of 16
    float* scores;           // room for [heads, length up to a multiple of 16]
    float* out;              // [heads, size]
};

struct EngineKernels {
    // out = x / sqrt(mean(x^2) + epsilon) * weight; in place is fine.
    void (*norm)(const float* x, const float* weight, int count, float epsilon, float* out);
    // gate * sigmoid(gate) * up
    void (*swiglu)(const float* gate, const float* up, int count, float* out);
    void (*attend)(const Attention& task);
    // Of logits whose first has the index `first`; count at least 1.
    TopTwo (*top_two)(const float* logits, int count, int first);
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
