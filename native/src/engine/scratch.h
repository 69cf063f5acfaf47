// What a thread of the engine has for itself, and its share of the work.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/engine.h"

namespace cassandra {

constexpr int LANES = 16;
constexpr size_t AHEAD = 1 << 16;  // bytes of a matrix that are fetched during a wait, at most
constexpr int TOGETHER = 4;        // query heads that attend at once, at most

inline int up_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Seconds.
inline double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Items first..last - 1 of `count` that a thread does.
struct Share {
    int first, last;
    Share(int count, int thread, int threads)
        : first(static_cast<int>(static_cast<int64_t>(count) * thread / threads)),
          last(static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads)) {}
};

// Rows that a thread has prepared for products, in the kinds that were asked for.
class Operand {
  public:
    explicit Operand(int features) : input_(features) {}

    // New rows, `stride` apart; they must stay until the products are done.
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
    unsigned ready_ = 0;  // kinds, a bit each
    const float* x_ = nullptr;
};

// Outputs of a matrix that a thread computes.
inline std::pair<int, int> outputs_of(const Linear& linear, int thread) {
    const int64_t last = kTile * linear.first_tile(thread + 1);
    return {static_cast<int>(kTile * linear.first_tile(thread)),
            static_cast<int>(std::min(last, linear.out_features()))};
}

struct Engine::Scratch {
    explicit Scratch(const ModelShape& shape)
        : hidden(shape.hidden), attended(shape.heads * shape.head_size), inner(shape.intermediate),
          embedded(shape.hidden), normed(static_cast<size_t>(PROMPT_ROWS) * shape.hidden),
          queries(static_cast<size_t>(TOGETHER) * shape.head_size),
          scores(static_cast<size_t>(TOGETHER) * up_to(shape.context, LANES)) {}

    Operand hidden, attended, inner;
    std::vector<uint16_t> embedded;  // a row of the embedding
    std::vector<float> normed;       // [PROMPT_ROWS, hidden]
    std::vector<float> queries;      // of the heads that attend together
    std::vector<float> scores;
};

}  // namespace cassandra
