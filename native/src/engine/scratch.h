// Per-thread buffers of the engine, and each thread's share of the work.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/engine.h"

namespace cassandra {

constexpr size_t AHEAD = 1 << 16;  // maximum bytes of a matrix prefetched during a wait

// Current time in seconds.
inline double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Rows that a thread has prepared for products, in the kinds requested so far.
class Operand {
  public:
    explicit Operand(int features) : input_(features) {}

    // Set new rows, `stride` apart; they must stay valid until the products are done.
    void set(int rows, const float* x, int stride) {
        rows_ = rows, x_ = x, stride_ = stride, ready_ = 0;
    }

    const Input& as(InputKind kind) {
        const unsigned bit = 1u << static_cast<int>(kind);
        if (!(ready_ & bit))
            for (int row = 0; row < rows_; ++row)
                input_.prepare(kind, row, x_ + static_cast<size_t>(row) * stride_);
        ready_ |= bit;
        return input_;
    }

  private:
    Input input_;
    int rows_ = 0, stride_ = 0;
    unsigned ready_ = 0;  // bitmap of prepared kinds
    const float* x_ = nullptr;
};

// Return the range of a matrix's outputs that a thread computes.
inline std::pair<int, int> outputs_of(const Linear& linear, int thread) {
    const int64_t last = kTile * linear.first_tile(thread + 1);
    return {static_cast<int>(kTile * linear.first_tile(thread)),
            static_cast<int>(std::min(last, linear.out_features()))};
}

// Rows of a slot that attend together.
struct RowGroup {
    int slot, count = 0;
    int32_t rows[MAX_ROWS];
    bool branches = false;  // true if a row is not at the place of its position
};

// Attention buffers; queries are those of a group's rows with one KV head.
struct AttentionRoom {
    AttentionRoom(int queries, const KeyValues& cache)
        : summary(static_cast<size_t>(SUMMARY) + cache.padded()),
          prepared(sizeof(float) * queries * cache.padded()),
          scores(sizeof(float) * queries * CHUNK), weights(sizeof(uint16_t) * queries * CHUNK),
          chunk(sizeof(float) * queries * summary), state(sizeof(float) * queries * summary),
          partial(sizeof(float) * queries * summary * (cache.chunks() + 2)),
          branches(sizeof(uint16_t) * MAX_ROWS * ChunkCache::size(2 * BLOCK, cache.padded())),
          opened(sizeof(uint16_t) * ChunkCache::size(CHUNK, cache.padded())) {}

    size_t summary;  // floats
    std::vector<RowGroup> groups;
    Pages prepared;  // queries
    Pages scores, weights;
    Pages chunk, state;  // summaries of a chunk, and of all chunks so far
    Pages partial;       // summaries of chunks that follow another thread's
    Pages branches;      // two blocks per row, in the order of positions
    Pages opened;        // a sealed chunk
};

struct Engine::Scratch {
    Scratch(const ModelShape& shape, const KeyValues& cache)
        : hidden(shape.hidden), attended(shape.heads * shape.head_size), inner(shape.intermediate),
          embedded(shape.hidden), normed(static_cast<size_t>(PROMPT_ROWS) * shape.hidden),
          query(shape.head_size), attention(MAX_ROWS * shape.heads / shape.kv_heads, cache) {}

    Operand hidden, attended, inner;
    std::vector<uint16_t> embedded;  // a row of the embedding
    std::vector<float> normed;       // [PROMPT_ROWS, hidden]
    std::vector<float> query;        // of one head
    AttentionRoom attention;
    std::vector<Ranked> ranked;  // [vocabulary] once a filter needs it
};

}  // namespace cassandra
