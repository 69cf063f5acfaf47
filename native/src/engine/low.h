// Low drafters: candidates for the next tokens without a model pass, and trees of them. Implements
// cassandra_spec.drafting.low, which documents the sources and constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine_constants.h"

namespace cassandra {

// Sources of nodes, in the order of native/engine_binding.py.
enum class Source : int32_t { view, copies, table, recycled, alternatives, grammar };

constexpr int REACH = 6;  // last tokens that candidates depend on

struct TreeNode {
    int32_t token;
    int32_t parent;     // smaller than the node's own index, or ROOT
    double confidence;  // low drafters: probability of the whole path; otherwise a margin
    Source source;
};

// One order of a table of n-grams (cassandra_spec.drafting.table). Also in engine_binding.py.
struct TableOrder {
    const uint64_t* keys;   // ascending; the last `order` tokens, 21 bits each
    const int32_t* tokens;  // [count, 3], -1: unused
    const float* confidences;
    int64_t count;
    int32_t order;
};

// Limits of a tree.
struct TreeLimits {
    int count;     // nodes
    int branches;  // candidates of one place
    int depth;
    double min_probability;  // of a node
    const int32_t* stops;
    int stop_count;
    bool stops_after(int32_t token) const;
};

class LowDrafter {
  public:
    LowDrafter() : copies_(1024) {}
    // Set the table's orders, from the highest down. The caller keeps the arrays alive.
    void set_table(const TableOrder* orders, int count) { table_.assign(orders, orders + count); }
    // Forget the sequence.
    void reset();
    // Append the tokens of a sequence from the last known one on.
    void extend(const int32_t* tokens, int count);
    // Store the target's top tokens after a token, best first.
    void observe(int32_t token, const int32_t* best, int count);
    // Write the most probable nodes below the end of a tail to `out`, and return their number.
    // Read-only: any number of threads may call it.
    int tree(const int32_t* tail, int tail_count, const TreeLimits& limits, TreeNode* out) const;

  private:
    using Run = std::array<int32_t, REACH>;  // right-aligned, -1 before its first token
    struct Hash {
        size_t operator()(const Run& run) const;
    };
    struct Found {
        std::array<int32_t, BRANCHES> tokens;
        int count = 0;
    };
    struct Candidate {
        int32_t token;
        double confidence;
        Source source;
        Source named;  // last source that named it
    };
    class Candidates;

    static Run run_of(const int32_t* end, int length);
    void copy(const int32_t* end, int length, Candidates& found) const;
    void look_up(const int32_t* end, int length, Candidates& found) const;
    void recycle(int32_t token, Candidates& found) const;

    std::vector<int32_t> tokens_;
    std::unordered_map<Run, Found, Hash> copies_;
    std::unordered_map<int32_t, Found> recycled_;
    std::vector<TableOrder> table_;
};

}  // namespace cassandra
