// Attention of queries to keys and values, a chunk of positions at a time.
//
// A softmax over many positions is computed chunk by chunk. Each chunk gives a summary of a query:
// the largest score, the sum of the weights, and the weighted sum of the values, both relative to
// that score. Summaries are merged in the order of positions. What a query gets of a chunk depends
// on the positions that it sees there, and on nothing else: not on other queries, and not on where
// the chunk was computed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cassandra {

constexpr int BLOCK = 16;    // positions whose keys lie side by side
constexpr int CHUNK = 128;   // positions of a chunk
constexpr int SUMMARY = 16;  // floats of a summary before its weighted sum: largest score, sum

// Positions first..last - 1 of a chunk.
struct Span {
    int32_t first, last;
    bool empty() const { return first >= last; }
};

// One chunk, and the rows that attend to it with some heads each.
//
// Keys are BF16 [CHUNK / BLOCK, padded / 2, BLOCK, 2]: pairs of dimensions. Values are BF16
// [CHUNK / 2, padded, 2]: pairs of positions. `padded` is the size of a head, up to a multiple of
// 16; the dimensions that fill it are zero in queries and keys.
struct ChunkJob {
    const uint16_t* keys;
    const uint16_t* values;
    ptrdiff_t ahead;  // numbers from these keys and values to those that are fetched meanwhile
    int padded;
    float cap;  // of scores; 0: none
    int rows, heads;
    const void* queries;  // [rows, heads], each as `prepare` writes it
    const Span* seen;     // [rows], what each row sees
    // The first `shared` positions, a multiple of BLOCK, are read from keys and values. A row reads
    // those behind them from blocks of its own, `own_stride` numbers from those of the row before.
    int shared;
    const uint16_t* own_keys;
    const uint16_t* own_values;
    size_t own_stride;
    float* scores;      // room for [rows * heads, CHUNK]
    uint16_t* weights;  // room for as many
    float* out;         // summaries [rows * heads, SUMMARY + padded]
};

struct AttentionKernels {
    bool rounded;  // whether queries and weights are rounded to BF16
    // Writes a query of `size` floats as number `number` of those that `attend` takes; all of them
    // take up to 4 * padded bytes each.
    void (*prepare)(const float* query, int size, int padded, int number, void* queries);
    // Writes the summaries of a chunk. A row that sees nothing has the sum 0.
    void (*attend)(const ChunkJob& job);
    // Adds a chunk's summary to that of the chunks before it.
    void (*merge)(float* state, const float* chunk, int padded);
    // Writes the `size` numbers that a query gets from the merged summary of all chunks.
    void (*finish)(const float* state, int size, float* out);
};

// The summary of no chunk.
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
namespace avx512bf16 {
extern const AttentionKernels attention_kernels;
}

// Those of the instruction set in use. Products of BF16 pairs round queries and weights to BF16;
// they are used where the linear kernels use them.
const AttentionKernels& attention_kernels();

}  // namespace cassandra
