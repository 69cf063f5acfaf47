// Rounds of speculation with levels, as cassandra_spec.drafting.levels.

#include <algorithm>
#include <cmath>

#include "engine/scratch.h"

namespace cassandra {

// A round, run by every thread with the same result.
class Engine::Round {
  public:
    Round(Engine& engine, int thread, const int32_t* history, int position,
          const RoundRequest& request)
        : engine_(engine), thread_(thread), position_(position), request_(request),
          recent_(std::min(position + 1, REACH)), most_(std::min(request.model, request.budget)) {
        std::copy_n(history + position + 1 - recent_, recent_, tail_);
    }

    // Return false if logits are not finite.
    bool run(const RoundResult& given) {
        if (request_.stage == Stage::verify) {
            for (count_ = 0; count_ < given.nodes; ++count_)
                nodes_[count_] = {given.tokens[count_], given.parents[count_],
                                  given.confidences[count_],
                                  static_cast<Source>(given.sources[count_])};
        } else if (!draft()) {
            return false;
        }
        return request_.stage == Stage::draft || verify();
    }

    void write(RoundResult& result) const {
        result = {};
        result.nodes = count_;
        for (int i = 0; i < count_; ++i) {
            result.tokens[i] = nodes_[i].token;
            result.parents[i] = nodes_[i].parent;
            result.sources[i] = static_cast<int32_t>(nodes_[i].source);
            result.confidences[i] = nodes_[i].confidence;
        }
        result.accepted = accepted_;
        for (int i = 0; i < accepted_; ++i) result.path[i] = path_[i] - 1;
        result.next = next_;
        result.stopped = stopped_;
        result.passes = passes_;
        std::copy_n(starts_, passes_, result.pass_starts);
        std::copy_n(rows_, passes_, result.pass_rows);
        std::copy_n(seconds_, passes_, result.pass_seconds);
        result.verify_seconds = verify_seconds_;
    }

  private:
    // Draft nodes. Return false if logits are not finite.
    bool draft() {
        const int rows = std::min(request_.rows, request_.budget);
        if (most_ == 0 || std::isfinite(request_.skip_draft_threshold)) {
            const int tree = std::min(request_.tree, request_.budget);
            count_ = low_tree(tree, tree, request_.min_node_probability, nodes_);
            double promised = 1.0;
            for (int i = 0; i < count_; ++i) promised += nodes_[i].confidence;
            if (most_ == 0 || promised >= request_.skip_draft_threshold) return true;
            count_ = 0;
        }
        while (goes_on())
            if (!extend()) return false;
        for (int at = 0; at < drafted_; ++at)
            nodes_[count_++] = {token(at), at - 1, margins_[at], Source::view};
        add_alternatives(rows);
        if (!ended_) add_tail(rows - count_);
        return true;
    }

    int32_t token(int at) const { return tail_[recent_ + at]; }
    bool goes_on() const { return drafted_ < most_ && !ended_ && !stopped_; }

    int low_tree(int count, int depth, double min_probability, TreeNode* out) const {
        if (!request_.uses_low) return 0;
        const TreeLimits limits = {count,           request_.branches, depth,
                                   min_probability, request_.stops,    request_.stop_count};
        return engine_.low_.tree(tail_, recent_ + drafted_, limits, out);
    }

    // Run one draft view pass and append the tokens that it drafts.
    bool extend() {
        const double begun = now();
        const int start = drafted_;
        TreeNode tree[MAX_ROWS];
        const int count = low_tree(std::min(request_.low, request_.budget - drafted_),
                                   most_ - drafted_ - 1, 0.0, tree);
        const int32_t pending = tail_[recent_ + drafted_ - 1];
        RowTrees rows = rows_of(pending, position_ + start, tree, count);
        rows.view = request_.view;
        engine_.step(thread_, rows, Pass::draft, 0);
        int32_t path[MAX_ROWS];
        int kept = 0;
        for (int row = 0;;) {
            const Top top = engine_.best(row);
            if (!top.finite) return false;
            add(top);
            const int below = goes_on() ? child(tree, count, row, top.index[0]) : 0;
            if (!below) break;
            path[kept++] = row = below;
        }
        engine_.keep(thread_, request_.slot, position_ + start, path, kept);
        starts_[passes_] = start;
        rows_[passes_] = rows.rows;
        seconds_[passes_++] = now() - begun;
        return true;
    }

    void add(const Top& top) {
        margins_[drafted_] = top.margin();
        second_[drafted_] = top.index[1];
        tail_[recent_ + drafted_++] = top.index[0];
        stopped_ = !(top.margin() >= request_.min_margin);
        const TreeLimits limits = {0, 0, 0, 0.0, request_.stops, request_.stop_count};
        ended_ = limits.stops_after(top.index[0]);
    }

    // Add the second-best tokens with the smallest margins.
    void add_alternatives(int rows) {
        int order[MAX_ROWS], unsure = 0;
        for (int at = 0; at < drafted_; ++at)
            if (margins_[at] < request_.alternative_margin) order[unsure++] = at;
        std::stable_sort(order, order + unsure,
                         [&](int a, int b) { return margins_[a] < margins_[b]; });
        const int most = std::min({request_.alternatives, rows - count_, unsure});
        for (int i = 0; i < most; ++i)
            nodes_[count_++] = {second_[order[i]], order[i] - 1, margins_[order[i]],
                                Source::alternatives};
    }

    // Add the low drafter's tree below the end of the chain.
    void add_tail(int count) {
        if (count <= 0) return;
        TreeNode tree[MAX_ROWS];
        const int found = low_tree(count, count, request_.min_node_probability, tree);
        const int shift = count_;
        for (int i = 0; i < found; ++i) {
            TreeNode node = tree[i];
            node.parent = node.parent == ROOT ? drafted_ - 1 : node.parent + shift;
            nodes_[count_++] = node;
        }
    }

    bool verify() {
        const double begun = now();
        verified_ = rows_of(tail_[recent_ - 1], position_, nodes_, count_);
        engine_.step(thread_, verified_, Pass::target, 0);
        for (int row = 0; row <= count_; ++row)
            if (!engine_.best(row).finite) return false;
        for (int row = 0; request_.stage == Stage::whole;) {
            next_ = engine_.best(row).index[0];
            const int below = child(nodes_, count_, row, next_);
            if (!below) break;
            path_[accepted_++] = row = below;
        }
        engine_.keep(thread_, request_.slot, position_, path_, accepted_);
        verify_seconds_ = now() - begun;
        return true;
    }

    RowTrees rows_of(int32_t pending, int position, const TreeNode* nodes, int count) const {
        RowTrees rows;
        rows.begin(pending, request_.slot, position);
        for (int i = 0; i < count; ++i) rows.add(nodes[i].token, nodes[i].parent + 1);
        return rows;
    }

    // Return the child row of a row with this token, or 0.
    static int child(const TreeNode* nodes, int count, int row, int32_t token) {
        for (int i = 0; i < count; ++i)
            if (nodes[i].parent == row - 1 && nodes[i].token == token) return i + 1;
        return 0;
    }

    Engine& engine_;
    const int thread_, position_;
    const RoundRequest& request_;
    const int recent_, most_;
    int32_t tail_[REACH + MAX_ROWS];  // last tokens of the context, then the chain
    int drafted_ = 0;                 // length of the chain
    float margins_[MAX_ROWS];
    int32_t second_[MAX_ROWS];
    bool ended_ = false, stopped_ = false;
    TreeNode nodes_[MAX_ROWS];
    int count_ = 0;
    RowTrees verified_;
    int32_t path_[MAX_ROWS];  // rows
    int accepted_ = 0;
    int32_t next_ = 0;
    int passes_ = 0;
    int32_t starts_[MAX_ROWS], rows_[MAX_ROWS];
    double seconds_[MAX_ROWS];
    double verify_seconds_ = 0.0;
};

bool Engine::round(const int32_t* history, int position, const RoundRequest& request,
                   RoundResult& result) {
    if (request.uses_low) low_.extend(history, position + 1);
    cache_.open(request.slot, position, position + 1 + std::min(request.budget, MAX_ROWS - 1));
    const RoundResult given = result;
    bool finite = true;
    pool_.run([&](int thread) {
        Round round(*this, thread, history, position, request);
        const bool good = round.run(given);
        if (thread) return;
        finite = good;
        round.write(result);
    });
    require_source();
    if (request.stage == Stage::draft) return finite;
    for (int row = 0; finite && request.uses_low && row <= result.nodes; ++row) {
        const Top top = best(row);
        const int32_t* end = std::find(top.index, top.index + BEST, -1);
        low_.observe(row ? result.tokens[row - 1] : history[position], top.index,
                     static_cast<int>(end - top.index));
    }
    return finite;
}

}  // namespace cassandra
