// Rounds of speculation with levels, as cassandra_spec.drafting.levels.

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/scratch.h"

namespace cassandra {

// One sequence's part of a round, computed by every thread with the same result.
class Engine::Part {
  public:
    Part(Engine& engine, const RoundRequest& request)
        : engine_(engine), request_(request), drafts_(request.count == 1 && request.wanted == 1),
          recent_(std::min(request.position + 1, REACH)),
          most_(drafts_ ? std::min(request.model, request.budget) : 0) {
        std::copy_n(request.history + request.position + 1 - recent_, recent_, tail_);
    }

    void give(const RoundResult& given) {
        for (count_ = 0; count_ < given.nodes; ++count_)
            nodes_[count_] = {given.tokens[count_], given.parents[count_],
                              given.confidences[count_],
                              static_cast<Source>(given.sources[count_])};
    }

    // Take a low drafter's tree instead of a chain if it is the better draft, or the only one.
    void begin() {
        if (!drafts_ || (most_ > 0 && !std::isfinite(request_.skip_draft_threshold))) return;
        const int tree = std::min(request_.tree, request_.budget);
        count_ = low_tree(tree, tree, request_.min_node_probability, nodes_);
        double promised = 1.0;
        for (int i = 0; i < count_; ++i) promised += nodes_[i].confidence;
        direct_ = most_ == 0 || promised >= request_.skip_draft_threshold;
        if (!direct_) count_ = 0;
    }

    bool goes_on() const { return drafted_ < most_ && !direct_ && !ended_ && !stopped_; }

    // Add the rows of the next draft view pass.
    void add_draft(RowTrees& rows) {
        start_ = drafted_;
        size_ = low_tree(std::min(request_.low, request_.budget - drafted_), most_ - drafted_ - 1,
                         0.0, tree_);
        add_tree(rows, tail_[recent_ + drafted_ - 1], request_.position + start_, tree_, size_);
    }

    // Append the tokens that the pass drafted. Return false if logits are not finite.
    bool take_draft(int thread, const RowTrees& rows) {
        int32_t path[MAX_ROWS];
        int kept = 0;
        for (int row = 0;;) {
            const Choice choice = engine_.choice(rows, 0, first_ + row);
            if (!choice.finite) return false;
            add(choice);
            const int below = goes_on() ? child(tree_, size_, row, choice.token) : 0;
            if (!below) break;
            path[kept++] = row = below;
        }
        engine_.keep(thread, request_.slot, request_.position + start_, path, kept);
        starts_[passes_] = start_;
        rows_[passes_++] = 1 + size_;
        return true;
    }

    // Complete the nodes: the chain, alternatives, and a low drafter's tree below its end.
    void end_draft() {
        if (!drafts_ || direct_) return;
        const int rows = std::min(request_.rows, request_.budget);
        for (int at = 0; at < drafted_; ++at)
            nodes_[count_++] = {tail_[recent_ + at], at - 1, margins_[at], Source::view};
        add_alternatives(rows);
        if (!ended_) add_tail(rows - count_);
    }

    // Add the rows of the verification that need no logits.
    void add_silent(RowTrees& rows) const {
        for (int at = 0; at < request_.count - request_.wanted; ++at) add_row(rows, at);
    }

    // Add the rows with logits.
    void add_verified(RowTrees& rows, int silent) {
        first_ = rows.rows - silent;
        if (drafts_)
            return add_tree(rows, tail_[recent_ - 1], request_.position, nodes_, count_, silent);
        for (int at = request_.count - request_.wanted; at < request_.count; ++at)
            add_row(rows, at);
    }

    // Choose the tokens, if the caller does not. Return false if logits are not finite.
    bool take_verified(int thread, const RowTrees& rows, int silent) {
        const int wanted = drafts_ ? count_ + 1 : request_.wanted;
        for (int row = 0; row < wanted; ++row)
            if (!engine_.best(first_ + row).finite) return false;
        if (!request_.wanted || !request_.chooses) return true;
        for (int row = drafts_ ? 0 : wanted - 1;;) {
            next_ = engine_.choice(rows, silent, first_ + row).token;
            const int below = drafts_ ? child(nodes_, count_, row, next_) : 0;
            if (!below) break;
            path_[accepted_++] = row = below;
        }
        engine_.keep(thread, request_.slot, request_.position, path_, accepted_);
        return true;
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
        result.logits = first_;
    }

    // Let the low drafters learn the target's top tokens after the verified rows.
    void observe() const {
        if (!request_.uses_low || !drafts_) return;
        LowDrafter& low = engine_.low(request_.slot);
        for (int row = 0; row <= count_; ++row) {
            const Top top = engine_.best(first_ + row);
            const int32_t* end = std::find(top.index, top.index + BEST, -1);
            low.observe(row ? nodes_[row - 1].token : request_.history[request_.position],
                        top.index, static_cast<int>(end - top.index));
        }
    }

  private:
    const Sampler* sampler() const {
        return request_.sampler.temperature > 0.0 ? &request_.sampler : nullptr;
    }

    void add_row(RowTrees& rows, int at) const {
        rows.begin(request_.history[request_.position + at], request_.slot, request_.position + at,
                   {}, request_.chooses ? sampler() : nullptr);
    }

    int low_tree(int count, int depth, double min_probability, TreeNode* out) const {
        if (!request_.uses_low) return 0;
        const TreeLimits limits = {count,           request_.branches, depth,
                                   min_probability, request_.stops,    request_.stop_count};
        return engine_.low(request_.slot).tree(tail_, recent_ + drafted_, limits, out);
    }

    void add(const Choice& choice) {
        margins_[drafted_] = choice.margin;
        second_[drafted_] = choice.second;
        tail_[recent_ + drafted_++] = choice.token;
        stopped_ = !(choice.margin >= request_.min_margin);
        const TreeLimits limits = {0, 0, 0, 0.0, request_.stops, request_.stop_count};
        ended_ = limits.stops_after(choice.token);
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

    void add_tree(RowTrees& rows, int32_t pending, int position, const TreeNode* nodes, int count,
                  int silent = -1) {
        const int first = rows.rows;
        const bool drafting = silent < 0;
        if (drafting) first_ = first;
        rows.begin(pending, request_.slot, position, drafting ? request_.range : KeyRange{},
                   drafting || request_.chooses ? sampler() : nullptr);
        for (int i = 0; i < count; ++i) rows.add(nodes[i].token, first + nodes[i].parent + 1);
    }

    // Return the child row of a row with this token, or 0.
    static int child(const TreeNode* nodes, int count, int row, int32_t token) {
        for (int i = 0; i < count; ++i)
            if (nodes[i].parent == row - 1 && nodes[i].token == token) return i + 1;
        return 0;
    }

    Engine& engine_;
    const RoundRequest& request_;
    const bool drafts_;
    const int recent_, most_;
    int32_t tail_[REACH + MAX_ROWS];  // last tokens of the context, then the chain
    int drafted_ = 0;                 // length of the chain
    float margins_[MAX_ROWS];
    int32_t second_[MAX_ROWS];
    bool direct_ = false, ended_ = false, stopped_ = false;
    TreeNode tree_[MAX_ROWS];  // below the chain in the current draft view pass
    int size_ = 0, start_ = 0;
    TreeNode nodes_[MAX_ROWS];
    int count_ = 0;
    int first_ = 0;           // its first row with logits in the current pass
    int32_t path_[MAX_ROWS];  // rows
    int accepted_ = 0;
    int32_t next_ = -1;
    int passes_ = 0;
    int32_t starts_[MAX_ROWS], rows_[MAX_ROWS];
};

// A round, run by every thread.
class Engine::Round {
  public:
    Round(Engine& engine, int thread, const RoundRequest* requests, int count)
        : engine_(engine), thread_(thread) {
        parts_.reserve(count);
        drafting_.reserve(count);
        for (int at = 0; at < count; ++at) parts_.emplace_back(engine, requests[at]);
    }

    // Return false if logits are not finite.
    bool run(Stage stage, const RoundResult* given) {
        if (stage != Stage::verify) {
            if (!draft()) return false;
        } else {
            for (size_t at = 0; at < parts_.size(); ++at) parts_[at].give(given[at]);
        }
        return stage == Stage::draft || verify();
    }

    void write(RoundResult* results, RoundTimes& times) const {
        for (size_t at = 0; at < parts_.size(); ++at) parts_[at].write(results[at]);
        times = times_;
    }

    void observe() const {
        for (const Part& part : parts_) part.observe();
    }

  private:
    bool draft() {
        for (Part& part : parts_) part.begin();
        const auto goes_on = [](const Part& part) { return part.goes_on(); };
        while (std::any_of(parts_.begin(), parts_.end(), goes_on))
            if (!extend()) return false;
        for (Part& part : parts_) part.end_draft();
        return true;
    }

    // Run one draft view pass over all unfinished chains.
    bool extend() {
        const double begun = now();
        RowTrees rows;
        drafting_.clear();
        for (Part& part : parts_)
            if (part.goes_on()) drafting_.push_back(&part);
        for (Part* part : drafting_) part->add_draft(rows);
        engine_.step(thread_, rows, Pass::draft, 0);
        for (Part* part : drafting_)
            if (!part->take_draft(thread_, rows)) return false;
        times_.pass_seconds[times_.passes++] = now() - begun;
        return true;
    }

    bool verify() {
        const double begun = now();
        RowTrees rows;
        for (const Part& part : parts_) part.add_silent(rows);
        const int silent = rows.rows;
        for (Part& part : parts_) part.add_verified(rows, silent);
        engine_.step(thread_, rows, Pass::target, silent);
        for (Part& part : parts_)
            if (!part.take_verified(thread_, rows, silent)) return false;
        times_.verify_seconds = now() - begun;
        return true;
    }

    Engine& engine_;
    const int thread_;
    std::vector<Part> parts_;
    std::vector<Part*> drafting_;  // in the current draft view pass
    RoundTimes times_{};
};

bool Engine::round(const RoundRequest* requests, int count, Stage stage, RoundResult* results,
                   RoundTimes& times) {
    int rows = 0;
    for (const RoundRequest* each = requests; each < requests + count; ++each) {
        const int most = each->count == 1 ? MAX_ROWS - 1 : 0;  // nodes, and places behind a chain
        if (each->uses_low && each->count == 1)
            low(each->slot).extend(each->history, each->position + 1);
        const int end = each->position + each->count + std::min(each->budget, 2 * most);
        seal(each->slot, each->position);
        cache_.open(each->slot, each->position, end);
        rows += each->count + std::min(each->budget, most);
        if (filters(each->sampler))
            for (auto& own : scratch_) own->ranked.resize(shape_.vocabulary);
    }
    require_logits(std::min(rows, PROMPT_ROWS));
    std::vector<Round> rounds;
    for (int thread = 0; thread < threads(); ++thread)
        rounds.emplace_back(*this, thread, requests, count);
    bool finite = true;
    pool_.run([&](int thread) {
        const bool good = rounds[thread].run(stage, results);
        if (!thread) finite = good;
    });
    require_source();
    if (finite && stage != Stage::draft) rounds[0].observe();
    rounds[0].write(results, times);
    return finite;
}

}  // namespace cassandra
