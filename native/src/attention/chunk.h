// Attention over one chunk, shared by all kernels: the order of the operations.
//
// An arithmetic A defines the multiplications:
//   Query, Weight              types of an element of a query, and of a weight
//   kQueries, kBlocks<N>, kVectors<N>  sizes of the inner loops for N queries, limited by registers
//   score<N, B>(...)           scores of N queries at B blocks
//   blend<N, V>(...)           weighted sums of V vectors of 16 dimensions, for N queries
//   soften(...)                scores of a query to weights
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "attention/attention.h"
#include "common/vector16.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

template <int N> using Count = std::integral_constant<int, N>;

// Call f(Count<n>) with the number of 1..Most that equals n.
template <int Most, class F> inline void with_count(int n, F f) {
    if constexpr (Most > 1)
        if (n < Most) return with_count<Most - 1>(n, f);
    f(Count<Most>());
}

// Call f(Count<n>, start) for the fewest runs of at most `Most` items, of nearly equal lengths.
template <int Most, class F> inline void in_runs(int count, F f) {
    for (int start = 0, left = (count + Most - 1) / Most; left; --left) {
        const int n = (count - start + left - 1) / left;
        with_count<Most>(n, [&](auto number) { f(number, start); });
        start += n;
    }
}

// Queries of a job that share keys and values, and their scores and weights.
template <class A> struct Queries {
    const typename A::Query* queries;  // [count, padded]
    int count;
    int padded;
    float* scores;                // [count, CHUNK]
    typename A::Weight* weights;  // [count, CHUNK]
    float* blends;                // [count], SUMMARY + padded apart
    ptrdiff_t ahead;              // distance to the data to prefetch
};

// Prefetch lines after `p` to the L2 cache, in the order in which they are read.
template <int Lines> inline void fetch(const uint16_t* p) {
    for (int i = 0; i < Lines; ++i) __builtin_prefetch(p + 32 * i, 0, 2);
}

// Compute scores at the blocks that overlap `span`; `keys` are those of block `origin`.
template <class A>
void score_span(const Queries<A>& q, const uint16_t* keys, int origin, Span span) {
    const int first = span.first / BLOCK, last = (span.last + BLOCK - 1) / BLOCK;
    const size_t size = static_cast<size_t>(BLOCK) * q.padded;
    in_runs<A::kQueries>(q.count, [&](auto n, int start) {
        constexpr int N = decltype(n)::value;
        const auto* queries = q.queries + static_cast<size_t>(start) * q.padded;
        in_runs<A::template kBlocks<N>>(last - first, [&](auto b, int at) {
            const int block = first + at;
            A::template score<N, decltype(b)::value>(
                queries, q.padded, keys + (block - origin) * size,
                q.scores + start * CHUNK + block * BLOCK, start ? 0 : q.ahead);
        });
    });
}

// Add weighted values at `span`; `values` are those of position `origin`. If the last position has
// no partner, the partner is not read.
template <class A>
void blend_span(const Queries<A>& q, const uint16_t* values, int origin, Span span) {
    const int first = span.first & ~1;
    const uint16_t* from = values + static_cast<size_t>(first - origin) * q.padded;
    in_runs<A::kQueries>(q.count, [&](auto n, int start) {
        constexpr int N = decltype(n)::value;
        const size_t apart = static_cast<size_t>(SUMMARY) + q.padded;
        in_runs<A::template kVectors<N>>(q.padded / 16, [&](auto v, int vector) {
            A::template blend<N, decltype(v)::value>(
                q.weights + start * CHUNK + first, from + 32 * vector, q.padded, span.last - first,
                q.blends + start * apart + 16 * vector, apart, start ? 0 : q.ahead);
        });
    });
}

inline Span both(Span a, Span b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }

// Return the span from the first to the last position that any row attends to.
inline Span seen_by_any(const ChunkJob& job) {
    Span all = {CHUNK, 0};
    for (int row = 0; row < job.rows; ++row) {
        if (job.seen[row].empty()) continue;
        all.first = std::min(all.first, job.seen[row].first);
        all.last = std::max(all.last, job.seen[row].last);
    }
    return all;
}

// Clear the weights of positions in `all`, rounded up to whole pairs, outside of `seen`.
template <class Weight> void clear_others(Weight* weights, Span all, Span seen) {
    const int first = all.first & ~1, last = (all.last + 1) & ~1;
    for (int i = first; i < std::min(seen.first, last); ++i) weights[i] = 0;
    for (int i = std::max(seen.last, first); i < last; ++i) weights[i] = 0;
}

template <class A> class Chunk {
  public:
    explicit Chunk(const ChunkJob& job) : job_(job), all_(seen_by_any(job)) {}

    void run() {
        const size_t apart = static_cast<size_t>(SUMMARY) + job_.padded;
        std::memset(job_.out, 0, sizeof(float) * apart * job_.rows * job_.heads);
        if (all_.empty()) return;
        const Span shared = both(all_, {0, job_.shared});
        if (!shared.empty()) score_span(of_rows(0, job_.rows), job_.keys, 0, shared);
        each_own([&](const Queries<A>& q, Span own, size_t at) {
            score_span(q, job_.own_keys + at, job_.shared / BLOCK, own);
        });
        for (int row = 0; row < job_.rows; ++row) soften(row);
        if (!shared.empty()) blend_span(of_rows(0, job_.rows), job_.values, 0, shared);
        each_own([&](const Queries<A>& q, Span own, size_t at) {
            blend_span(q, job_.own_values + at, job_.shared, own);
        });
    }

  private:
    Queries<A> of_rows(int row, int rows) const {
        const size_t first = static_cast<size_t>(row) * job_.heads;
        return {static_cast<const typename A::Query*>(job_.queries) + first * job_.padded,
                rows * job_.heads,
                job_.padded,
                job_.scores + first * CHUNK,
                A::weights(job_) + first * CHUNK,
                job_.out + first * (SUMMARY + job_.padded) + SUMMARY,
                job_.ahead};
    }

    // Call f for each row that reads its own blocks.
    template <class F> void each_own(F f) const {
        for (int row = 0; row < job_.rows; ++row) {
            const Span own = both(job_.seen[row], {job_.shared, CHUNK});
            if (own.empty()) continue;
            Queries<A> queries = of_rows(row, 1);
            queries.ahead = 0;
            f(queries, own, row * job_.own_stride);
        }
    }

    void soften(int row) const {
        const Queries<A> q = of_rows(row, 1);
        const Span seen = job_.seen[row];
        for (int i = 0; i < q.count; ++i) {
            float* summary = q.blends + i * (SUMMARY + job_.padded) - SUMMARY;
            if (!seen.empty())
                A::soften(q.scores + i * CHUNK, seen, job_.cap, q.weights + i * CHUNK, summary);
            clear_others(q.weights + i * CHUNK, all_, seen.empty() ? Span{CHUNK, CHUNK} : seen);
        }
    }

    const ChunkJob& job_;
    const Span all_;
};

template <class A> void attend(const ChunkJob& job) { Chunk<A>(job).run(); }

inline void scale_add(float* state, float scale, const float* chunk, float other, int count) {
    const V16 scales = set(scale), others = set(other);
    for (int i = 0; i < count; i += 16)
        store(state + i, madd(load(chunk + i), others, mul(load(state + i), scales)));
}

inline float exponential_of(float x) {
    float lane[16];
    store(lane, exponential(set(x)));
    return lane[0];
}

// A summary whose sum is 0 is empty.
inline void merge(float* state, const float* chunk, int padded) {
    if (chunk[1] == 0.0f) return;
    if (state[1] == 0.0f) {
        std::copy_n(chunk, SUMMARY + padded, state);
        return;
    }
    const float top = chunk[0] > state[0] ? chunk[0] : state[0];
    const float before = exponential_of(state[0] - top), now = exponential_of(chunk[0] - top);
    state[0] = top;
    state[1] = state[1] * before + chunk[1] * now;
    scale_add(state + SUMMARY, before, chunk + SUMMARY, now, padded);
}

inline void finish(const float* state, int size, float* out) {
    const float scale = 1.0f / state[1];
    for (int i = 0; i < size; ++i) out[i] = state[SUMMARY + i] * scale;
}

}  // namespace
}  // namespace CASSANDRA_ISA
}  // namespace cassandra
