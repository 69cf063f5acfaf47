// Low drafters: candidates for the next tokens that cost no pass, and trees of them. As
// cassandra_spec.drafting.low, which says what each source and each number means.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace cassandra {

// Sources of nodes; their order is that of native/engine_binding.py.
enum class Source : int32_t { view, copies, table, recycled, alternatives, grammar };

constexpr int ROOT = -1;        // parent of nodes below the last token of the context
constexpr int BRANCHES = 4;     // candidates of a place that a source names, at most
constexpr int REACH = 6;        // last tokens that candidates depend on
constexpr int MOST_NODES = 15;  // of a tree

struct TreeNode {
    int32_t token;
    int32_t parent;     // smaller than the node's own index, or ROOT
    double confidence;  // of low drafters: the probability of the whole path; else a margin
    Source source;
};

// One order of a table of n-grams (cassandra_spec.drafting.table). Also in engine_binding.py.
struct TableOrder {
    const uint64_t* keys;   // ascending; the last `order` tokens, 21 bits each
    const int32_t* tokens;  // [count, 3], -1 where there is none
    const float* confidences;
    int64_t count;
    int32_t order;
};

// What a tree may have.
struct TreeLimits {
    int count;     // nodes
    int branches;  // candidates of one place
    int depth;
    double least;  // probability of a node
    const int32_t* stops;
    int stop_count;
    bool stops_after(int32_t token) const;
};

class LowDrafter {
  public:
    LowDrafter() : copies_(1024) {}
    // The arrays are the caller's and must stay. From the highest order down.
    void set_table(const TableOrder* orders, int count) { table_.assign(orders, orders + count); }
    // Forgets the sequence. A sequence has one LowDrafter.
    void reset();
    // Takes the tokens of a sequence from the last known one on.
    void extend(const int32_t* tokens, int count);
    // Takes the target's best tokens after a token, the best first.
    void observe(int32_t token, const int32_t* best, int count);
    // Writes the likeliest nodes below the end of a tail to `out`, and returns how many. Reads
    // only: any number of threads may ask.
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
        Source named;  // the last source that named it
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
