#include "engine/low.h"

#include <algorithm>

namespace cassandra {
namespace {

constexpr int TABLE_WIDTH = 3;
constexpr int KEY_BITS = 21;
constexpr double COPY_PRECISION[REACH] = {0.15, 0.40, 0.46, 0.65, 0.70, 0.75};
constexpr double ORDER_TRUST[] = {0.0, 0.5, 0.8};  // trust in orders 1 and 2; higher orders have 1
constexpr double RECYCLED_PRECISION[BRANCHES] = {0.35, 0.12, 0.06, 0.04};
constexpr int MAX_CANDIDATES = REACH * BRANCHES + REACH * TABLE_WIDTH + BRANCHES;

}  // namespace

bool TreeLimits::stops_after(int32_t token) const {
    return std::find(stops, stops + stop_count, token) != stops + stop_count;
}

// Candidates of one node, each token once with the largest of its confidences. Within one source
// the first mention of a token counts.
class LowDrafter::Candidates {
  public:
    void add(int32_t token, double confidence, Source source) {
        Candidate* end = all_ + count_;
        Candidate* known =
            std::find_if(all_, end, [&](const Candidate& each) { return each.token == token; });
        if (known == end)
            all_[count_++] = {token, confidence, source, source};
        else if (known->named != source && confidence > known->confidence)
            *known = {token, confidence, source, source};
        else
            known->named = source;
    }
    // Sort best first; among equals the candidate found first wins.
    int sort(int most) {
        std::stable_sort(all_, all_ + count_, [](const Candidate& a, const Candidate& b) {
            return a.confidence > b.confidence;
        });
        return std::min(count_, most);
    }
    const Candidate& operator[](int i) const { return all_[i]; }

  private:
    Candidate all_[MAX_CANDIDATES];
    int count_ = 0;
};

size_t LowDrafter::Hash::operator()(const Run& run) const {
    uint64_t mixed = 0xcbf29ce484222325u;
    for (const int32_t token : run) {
        mixed = (mixed ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
        mixed ^= mixed >> 29;
    }
    return mixed;
}

LowDrafter::Run LowDrafter::run_of(const int32_t* end, int length) {
    Run run;
    run.fill(-1);
    std::copy(end - length, end, run.end() - length);
    return run;
}

void LowDrafter::reset() {
    tokens_.clear();
    copies_.clear();
    recycled_.clear();
}

void LowDrafter::extend(const int32_t* tokens, int count) {
    for (int at = static_cast<int>(tokens_.size()); at < count; ++at) {
        const int32_t token = tokens[at];
        for (int length = 1; length <= std::min(REACH, at); ++length) {
            Found& found = copies_[run_of(tokens + at, length)];
            auto* end = found.tokens.data() + found.count;
            auto* place = std::find(found.tokens.data(), end, token);
            if (place == end) {
                if (found.count < BRANCHES) ++found.count;
                place = found.tokens.data() + found.count - 1;
            }
            std::copy_backward(found.tokens.data(), place, place + 1);
            found.tokens[0] = token;
        }
        tokens_.push_back(token);
    }
}

void LowDrafter::observe(int32_t token, const int32_t* best, int count) {
    Found& found = recycled_[token];
    found.count = std::min(count, BRANCHES);
    std::copy_n(best, found.count, found.tokens.data());
}

void LowDrafter::copy(const int32_t* end, int length, Candidates& found) const {
    for (int size = std::min(length, REACH); size > 0; --size) {
        const auto known = copies_.find(run_of(end, size));
        if (known == copies_.end()) continue;
        for (int i = 0; i < known->second.count; ++i)
            found.add(known->second.tokens[i], COPY_PRECISION[size - 1], Source::copies);
    }
}

void LowDrafter::look_up(const int32_t* end, int length, Candidates& found) const {
    for (const TableOrder& order : table_) {
        if (length < order.order) continue;
        uint64_t key = 0;
        for (const int32_t* at = end - order.order; at < end; ++at)
            key = key << KEY_BITS | static_cast<uint32_t>(*at);
        const uint64_t* last = order.keys + order.count;
        const uint64_t* place = std::lower_bound(order.keys, last, key);
        if (place == last || *place != key) continue;
        const double trust = order.order < 3 ? ORDER_TRUST[order.order] : 1.0;
        const int64_t row = (place - order.keys) * TABLE_WIDTH;
        for (int64_t i = row; i < row + TABLE_WIDTH; ++i)
            if (order.tokens[i] >= 0)
                found.add(order.tokens[i], trust * order.confidences[i], Source::table);
    }
}

void LowDrafter::recycle(int32_t token, Candidates& found) const {
    const auto known = recycled_.find(token);
    if (known == recycled_.end()) return;
    for (int i = 0; i < known->second.count; ++i)
        found.add(known->second.tokens[i], RECYCLED_PRECISION[i], Source::recycled);
}

int LowDrafter::tree(const int32_t* tail, int tail_count, const TreeLimits& limits,
                     TreeNode* out) const {
    struct Open {
        TreeNode node;
        int depth;
    };
    Open open[(MAX_NODES + 1) * MAX_CANDIDATES];
    int open_count = 0, count = 0;
    int32_t path[REACH + MAX_NODES];  // of the node whose children are computed
    const int recent = std::min(tail_count, REACH);
    const auto put_below = [&](int parent, double probability, int depth) {
        const int length = recent + depth - 1;
        std::copy(tail + tail_count - recent, tail + tail_count, path);
        for (int at = parent, place = length; at != ROOT; at = out[at].parent)
            path[--place] = out[at].token;
        Candidates found;
        copy(path + length, length, found);
        look_up(path + length, length, found);
        recycle(path[length - 1], found);
        const int best = found.sort(limits.branches);
        for (int i = 0; i < best; ++i)
            open[open_count++] = {
                {found[i].token, parent, probability * found[i].confidence, found[i].source},
                depth};
    };
    if (limits.depth > 0 && limits.count > 0) put_below(ROOT, 1.0, 1);
    while (open_count && count < std::min(limits.count, MAX_NODES)) {
        Open* chosen = std::max_element(open, open + open_count, [](const Open& a, const Open& b) {
            return a.node.confidence < b.node.confidence;
        });
        if (chosen->node.confidence < limits.min_probability) break;
        const int depth = chosen->depth;
        out[count++] = chosen->node;
        std::copy(chosen + 1, open + open_count--, chosen);
        const TreeNode& node = out[count - 1];
        if (depth < limits.depth && count < limits.count && !limits.stops_after(node.token))
            put_below(count - 1, node.confidence, depth + 1);
    }
    return count;
}

}  // namespace cassandra
