// Attention of a pass. Rows of a slot form groups that share each load of keys and values. Threads
// divide the chunks of all groups and KV heads among them, one run of chunks each.

#include <algorithm>

#include "engine/scratch.h"

namespace cassandra {
namespace {

// A chunk, by its first position, and its range of positions that rows may attend to.
struct Piece {
    int start;
    Span seen;
};

inline Span both(Span a, Span b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }
inline Span moved(Span a, int by) { return {a.first - by, a.last - by}; }

// Two runs of positions, cut at the borders of chunks.
class Pieces {
  public:
    Pieces(Span sinks, Span rest) : runs_{sinks, rest} {
        for (int run = 0; run < 2; ++run)
            if (!runs_[run].empty())
                counts_[run] = (runs_[run].last - 1) / CHUNK - runs_[run].first / CHUNK + 1;
    }

    int count() const { return counts_[0] + counts_[1]; }

    Piece at(int number) const {
        const int run = number < counts_[0] ? 0 : 1;
        const int place = number - (run ? counts_[0] : 0);
        const int start = (runs_[run].first / CHUNK + place) * CHUNK;
        return {start, both({start, start + CHUNK}, runs_[run])};
    }

  private:
    Span runs_[2];
    int counts_[2] = {0, 0};
};

// Chunks of one group and one head; `mine` is the thread's range.
struct Item {
    const RowGroup& group;
    int head;
    const Pieces& pieces;
    int64_t offset;  // of its first chunk in the pass's work

    // Return the first chunk that begins at or after a place of the work.
    int chunk_at(int64_t place) const {
        const int64_t before = std::max<int64_t>(place - offset, 0);
        return static_cast<int>(
            std::min<int64_t>((before + group.count - 1) / group.count, pieces.count()));
    }
};

}  // namespace

void Engine::group_rows(int thread, const RowTrees& trees) {
    std::vector<RowGroup>& groups = scratch_[thread]->attention.groups;
    groups.clear();
    for (int row = 0; row < trees.rows; ++row) {
        const auto fits = [&](const RowGroup& group) {
            return group.slot == trees.slots[row] && group.count < MAX_ROWS;
        };
        auto found = std::find_if(groups.begin(), groups.end(), fits);
        if (found == groups.end()) found = groups.insert(found, {trees.slots[row], 0, {}, false});
        found->rows[found->count++] = row;
        found->branches = found->branches || trees.numbers[row] != trees.depths[row];
    }
}

class Engine::Attention {
  public:
    Attention(Engine& engine, int thread, const RowTrees& trees, Pass pass, int layer)
        : engine_(engine), kernels_(engine.attention_), room_(engine.scratch_[thread]->attention),
          thread_(thread), trees_(trees), draft_(pass == Pass::draft), layer_(layer),
          padded_(engine.cache_.padded()), heads_(engine.shape_.heads / engine.shape_.kv_heads) {
        each_item([&](const Item& item) { total_ = item.offset + work(item); });
    }

    // Process the thread's chunks; finish the items that belong to it alone.
    void run() {
        each_item([&](const Item& item) {
            const Span mine = chunks_of(item, thread_);
            if (mine.empty()) return;
            prepare(item);
            if (item.group.branches) copy_branches(item);
            if (mine.first > 0) return run_behind(item, mine);
            run_first(item, mine);
            if (mine.last == item.pieces.count()) finish(item);
        });
    }

    // Return true if threads share the chunks of an item: merge() then follows a barrier.
    bool shared() const {
        bool found = false;
        each_item([&](const Item& item) {
            const Span first = chunks_of(item, thread_of(item));
            found = found || first.last < item.pieces.count();
        });
        return found;
    }

    // Merge the chunks that follow the thread's own first chunk, and finish the item.
    void merge() {
        each_item([&](const Item& item) {
            const Span mine = chunks_of(item, thread_);
            if (mine.empty() || mine.first > 0 || mine.last == item.pieces.count()) return;
            for (int other = thread_ + 1; other < engine_.threads(); ++other)
                merge_behind(item, other);
            finish(item);
        });
    }

  private:
    static int64_t work(const Item& item) {
        return static_cast<int64_t>(item.group.count) * item.pieces.count();
    }

    template <class F> void each_item(F f) const {
        int64_t offset = 0;
        for (const RowGroup& group : room_.groups) {
            const Pieces pieces = pieces_of(group);
            for (int head = 0; head < engine_.shape_.kv_heads; ++head) {
                const Item item = {group, head, pieces, offset};
                f(item);
                offset += work(item);
            }
        }
    }

    Span chunks_of(const Item& item, int thread) const {
        const int threads = engine_.threads();
        return {item.chunk_at(total_ * thread / threads),
                item.chunk_at(total_ * (thread + 1) / threads)};
    }

    // Return the thread that has the first chunk of an item.
    int thread_of(const Item& item) const {
        int thread = 0;
        while (chunks_of(item, thread).last == 0) ++thread;
        return thread;
    }

    // Return the span that a row attends to, given its length and the layer's window.
    Span span_of(int row) const {
        const int length = trees_.position(row) + 1;
        const int window = engine_.layer_shapes_[layer_].window;
        return {window ? std::max(0, length - window) : 0, length};
    }

    Pieces pieces_of(const RowGroup& group) const {
        Span all = span_of(group.rows[0]);
        for (int i = 1; i < group.count; ++i) {
            const Span span = span_of(group.rows[i]);
            all = {std::min(all.first, span.first), std::max(all.last, span.last)};
        }
        const KeyRange& range = trees_.ranges[group.rows[0]];
        if (range.start <= range.sinks) return {{0, 0}, all};
        return {both(all, {0, range.sinks}), both(all, {range.start, all.last})};
    }

    ChunkCache chunk(const Item& item, int position) const {
        return engine_.cache_.chunk(item.group.slot, layer_, item.head, position);
    }

    // Prepare the queries of the rows: rotate and scale them.
    void prepare(const Item& item) {
        const ModelShape& shape = engine_.shape_;
        const float* weight = engine_.head_norm(layer_, VECTOR_Q_NORM);
        float* query = engine_.scratch_[thread_]->query.data();
        for (int i = 0; i < item.group.count * heads_; ++i) {
            const int row = item.group.rows[i / heads_], head = item.head * heads_ + i % heads_;
            std::copy_n(&engine_.q_[place_of(row, head)], shape.head_size, query);
            if (weight) engine_.kernels_.norm(query, weight, shape.head_size, shape.epsilon, query);
            engine_.rotate(query, row, layer_);
            for (int d = 0; d < shape.head_size; ++d) query[d] *= shape.query_scale;
            kernels_.prepare(query, shape.head_size, padded_, i, room_.prepared.as<void>());
        }
    }

    size_t place_of(int row, int head) const {
        return (static_cast<size_t>(row) * engine_.shape_.heads + head) * engine_.shape_.head_size;
    }

    // Return the number of positions that all rows of a tree share, in whole blocks.
    int shared_positions(const RowGroup& group) const {
        return trees_.starts[group.rows[0]] / BLOCK * BLOCK;
    }

    ChunkCache branch(int number) const {
        const size_t size = ChunkCache::size(2 * BLOCK, padded_);
        uint16_t* keys = room_.branches.as<uint16_t>() + number * size;
        return {keys, keys + size / 2, padded_};
    }

    // Copy the last blocks of each row in the order of positions.
    void copy_branches(const Item& item) {
        const int start = trees_.starts[item.group.rows[0]], before = shared_positions(item.group);
        const ChunkCache last = chunk(item, before).from(before % CHUNK);
        for (int i = 0; i < item.group.count; ++i) {
            const ChunkCache to = branch(i);
            std::copy_n(last.keys, BLOCK * padded_, to.keys);
            std::copy_n(last.values, BLOCK * padded_, to.values);
            const int row = item.group.rows[i];
            for (int depth = 0; depth <= trees_.depths[row]; ++depth) {
                const int place = start + trees_.paths[row][depth];
                copy_position(chunk(item, place), place % CHUNK, to, start - before + depth);
            }
        }
    }

    // Return a chunk in BF16; of a sealed chunk, open only the blocks that rows attend to.
    ChunkCache opened(const Item& item, const Piece& piece) const {
        const SealedChunk* sealed = engine_.cache_.sealed(item.group.slot, piece.start);
        if (!sealed) return chunk(item, piece.start);
        uint16_t* keys = room_.opened.as<uint16_t>();
        const ChunkCache to = {keys, keys + ChunkCache::size(CHUNK, padded_) / 2, padded_};
        const Span seen = moved(piece.seen, piece.start);
        engine_.cache_.open_chunk(*sealed, layer_, item.head, draft_, seen.first, seen.last, to);
        return to;
    }

    // Return the distance to the next chunk for prefetching; 0 if either is sealed.
    ptrdiff_t ahead_of(const Item& item, int number) const {
        const int last = item.pieces.count() - 1;
        const int here = item.pieces.at(number).start;
        const int next = item.pieces.at(std::min(number + 1, last)).start;
        const KeyValues& cache = engine_.cache_;
        if (cache.sealed(item.group.slot, here) || cache.sealed(item.group.slot, next)) return 0;
        return chunk(item, next).keys - chunk(item, here).keys;
    }

    // Compute the summaries of one of the thread's chunks.
    void attend(const Item& item, int number, float* out) {
        const Piece piece = item.pieces.at(number);
        Span seen[MAX_ROWS];
        for (int i = 0; i < item.group.count; ++i)
            seen[i] = moved(both(piece.seen, span_of(item.group.rows[i])), piece.start);
        const ChunkCache whole = opened(item, piece);
        const int ahead = shared_positions(item.group) - piece.start;
        const ChunkCache own = branch(0).from(std::max(0, -ahead));
        kernels_.attend({whole.keys, whole.values, ahead_of(item, number), padded_,
                         engine_.shape_.attention_cap, item.group.count, heads_,
                         room_.prepared.as<void>(), seen,
                         item.group.branches ? std::clamp(ahead, 0, CHUNK) : CHUNK, own.keys,
                         own.values, ChunkCache::size(2 * BLOCK, padded_), room_.scores.as<float>(),
                         room_.weights.as<uint16_t>(), out});
    }

    template <class F> void each_summary(const Item& item, F f) const {
        for (int i = 0; i < item.group.count * heads_; ++i) f(i * room_.summary);
    }

    // Process chunks from an item's first on, merging their summaries immediately.
    void run_first(const Item& item, Span mine) {
        float* state = room_.state.as<float>();
        each_summary(item, [&](size_t at) { clear_summary(state + at, padded_); });
        for (int number = mine.first; number < mine.last; ++number) {
            float* chunk = room_.chunk.as<float>();
            attend(item, number, chunk);
            each_summary(item, [&](size_t at) { kernels_.merge(state + at, chunk + at, padded_); });
        }
    }

    // Return where a thread stores the summaries of a chunk that follows another thread's.
    float* partial(const AttentionRoom& room, const Item& item, int number) const {
        return room.partial.as<float>() + room.summary * item.group.count * heads_ * number;
    }

    // Process chunks that follow another thread's, which will merge their summaries.
    void run_behind(const Item& item, Span mine) {
        for (int number = mine.first; number < mine.last; ++number)
            attend(item, number, partial(room_, item, number - mine.first));
    }

    void merge_behind(const Item& item, int other) {
        const Span theirs = chunks_of(item, other);
        const AttentionRoom& room = engine_.scratch_[other]->attention;
        float* state = room_.state.as<float>();
        for (int number = 0; number < theirs.last - theirs.first; ++number) {
            const float* chunk = partial(room, item, number);
            each_summary(item, [&](size_t at) { kernels_.merge(state + at, chunk + at, padded_); });
        }
    }

    void finish(const Item& item) {
        for (int i = 0; i < item.group.count * heads_; ++i) {
            const int row = item.group.rows[i / heads_], head = item.head * heads_ + i % heads_;
            kernels_.finish(room_.state.as<float>() + i * room_.summary, engine_.shape_.head_size,
                            &engine_.attended_[place_of(row, head)]);
        }
    }

    Engine& engine_;
    const AttentionKernels& kernels_;
    AttentionRoom& room_;
    const int thread_;
    const RowTrees& trees_;
    const bool draft_;
    const int layer_, padded_, heads_;
    int64_t total_ = 0;  // work of the pass, in chunks of a row
};

void Engine::attend(int thread, const RowTrees& trees, Pass pass, int index) {
    Attention attention(*this, thread, trees, pass, index);
    attention.run();
    if (threads() > 1 && attention.shared()) {
        pool_.barrier();
        attention.merge();
    }
    wait_before(thread, layers_[index].matrices[MATRIX_O].of(pass));
}

}  // namespace cassandra
