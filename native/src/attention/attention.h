// Attention of queries to keys and values, one chunk of positions at a time.
//
// A softmax over many positions is computed chunk by chunk. Each chunk yields a summary per query:
// the largest score, the sum of the weights, and the weighted sum of the values, the sums relative
// to that score. Summaries are merged in the order of positions. A query's summary of a chunk
// depends only on the positions that it attends to there: not on other queries, and not on the
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine_constants.h"

namespace cassandra {

constexpr int BLOCK = 16;    // positions whose keys are interleaved
constexpr int SUMMARY = 16;  // floats of a summary before its weighted sum: largest score, sum

// Positions first..last - 1 of a chunk.
struct Span {
    int32_t first, last;
    bool empty() const { return first >= last; }
};

// One chunk, and the rows that attend to it with one or more heads each.
//
// Keys are BF16 [CHUNK / BLOCK, padded / 2, BLOCK, 2]: pairs of dimensions. Values are BF16 [CHUNK
// / 2, padded, 2]: pairs of positions. `padded` is the head size rounded up to a multiple of 16;
// the padding is zero in queries and keys.
struct ChunkJob {
    const uint16_t* keys;
    const uint16_t* values;
    ptrdiff_t ahead;  // elements from these keys and values to those to prefetch
    int padded;
    float cap;  // on scores; 0: off
    int rows, heads;
    const void* queries;  // [rows, heads], each as `prepare` writes it
    const Span* seen;     // [rows], positions that each row attends to
    // The first `shared` positions, a multiple of BLOCK, are read from keys and values. Each row
    // reads the positions after them from its own blocks, `own_stride` elements after those of the
    // row before.
    int shared;
    const uint16_t* own_keys;
    const uint16_t* own_values;
    size_t own_stride;
    float* scores;      // scratch for [rows * heads, CHUNK]
    uint16_t* weights;  // scratch of the same shape
    float* out;         // summaries [rows * heads, SUMMARY + padded]
};

struct AttentionKernels {
    bool rounded;  // true if queries and weights are rounded to BF16
    // Write a query of `size` floats as number `number` of the queries for `attend`; each takes up
    // to 4 * padded bytes.
    void (*prepare)(const float* query, int size, int padded, int number, void* queries);
    // Write the summaries of a chunk. The sum of a row that attends to nothing is 0.
    void (*attend)(const ChunkJob& job);
    // Merge a chunk's summary into that of the chunks before it.
    void (*merge)(float* state, const float* chunk, int padded);
    // Write the `size` output elements of a query from the merged summary of all chunks.
    void (*finish)(const float* state, int size, float* out);
};

// Set a summary to that of an empty chunk.
inline void clear_summary(float* state, int padded) {
    for (int i = 0; i < SUMMARY + padded; ++i) state[i] = 0.0f;
}

namespace portable {
extern const AttentionKernels attention_kernels;
}
namespace avx2 {
extern const AttentionKernels attention_kernels;
}
namespace avx512 {
extern const AttentionKernels attention_kernels;
}
namespace neon {
extern const AttentionKernels attention_kernels;
}
namespace avx512bf16 {
extern const AttentionKernels attention_kernels;
}

// Kernels of the selected instruction set. Those with BF16 dot products round queries and weights
// to BF16; they are used where the linear kernels use them.
const AttentionKernels& attention_kernels();

}  // namespace cassandra
