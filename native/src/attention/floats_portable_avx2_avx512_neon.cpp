// Attention in float32, without rounding queries and weights.

#include <cmath>

#include "attention/chunk.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

struct Floats {
    using Query = float;
    using Weight = float;

#if defined(__AVX512F__)
    static constexpr int kQueries = 12;
    template <int N> static constexpr int kBlocks = N <= 3 || N > 6 ? 2 : 4;
    template <int N> static constexpr int kVectors = N > 6 ? 2 : 4;
#else
    static constexpr int kQueries = 3;
    template <int N> static constexpr int kBlocks = 1;
    template <int N> static constexpr int kVectors = 1;
#endif

    static float* weights(const ChunkJob& job) { return job.scores; }

    // Add the products of N factors and the first or second numbers of M lines of pairs. The lines
    // are loaded for each half: both halves at once would not fit into the registers.
    template <int N, int M, int Half>
    static inline void add_products(V16 (&total)[N][M], const float* factors, int factor_stride,
                                    const uint16_t* lines, int line_stride) {
        V16 numbers[M];
        for (int m = 0; m < M; ++m) numbers[m] = load_half<Half>(lines + m * line_stride);
        for (int n = 0; n < N; ++n) {
            const V16 factor = set(factors[n * factor_stride]);
            for (int m = 0; m < M; ++m) total[n][m] = madd(numbers[m], factor, total[n][m]);
        }
    }

    // A lane is a position: no sums across lanes.
    template <int N, int B>
    static void score(const float* queries, int padded, const uint16_t* keys, float* scores,
                      ptrdiff_t ahead) {
        V16 total[N][B];
        for (int q = 0; q < N; ++q)
            for (int b = 0; b < B; ++b) total[q][b] = set(0.0f);
        for (int d = 0; d < padded; d += 2) {
            const uint16_t* lines = keys + BLOCK * d;
            if (ahead)
                for (int b = 0; b < B; ++b) fetch<1>(lines + BLOCK * b * padded + ahead);
            add_products<N, B, 0>(total, queries + d, padded, lines, BLOCK * padded);
            add_products<N, B, 1>(total, queries + d + 1, padded, lines, BLOCK * padded);
        }
        for (int q = 0; q < N; ++q)
            for (int b = 0; b < B; ++b) store(scores + q * CHUNK + b * BLOCK, total[q][b]);
    }

    template <int N, int V>
    static void blend(const float* weights, const uint16_t* values, int padded, int count,
                      float* blends, size_t apart, ptrdiff_t ahead) {
        V16 total[N][V];
        for (int q = 0; q < N; ++q)
            for (int v = 0; v < V; ++v) total[q][v] = load(blends + q * apart + 16 * v);
        for (int at = 0; at < count; at += 2) {
            const uint16_t* lines = values + at * padded;
            if (ahead)
                for (int v = 0; v < V; ++v) fetch<1>(lines + 32 * v + ahead);
            add_products<N, V, 0>(total, weights + at, CHUNK, lines, 32);
            if (at + 1 < count) add_products<N, V, 1>(total, weights + at + 1, CHUNK, lines, 32);
        }
        for (int q = 0; q < N; ++q)
            for (int v = 0; v < V; ++v) store(blends + q * apart + 16 * v, total[q][v]);
    }

    // Replace the lanes outside of a span of a chunk.
    static V16 within(V16 a, int at, Span span, float other) {
        if (span.first <= at && at + 16 <= span.last) return a;
        float lane[16];
        store(lane, a);
        for (int i = 0; i < 16; ++i)
            if (at + i < span.first || at + i >= span.last) lane[i] = other;
        return load(lane);
    }

    static void soften(float* scores, Span seen, float bound, float* weights, float* summary) {
        const int start = seen.first / 16 * 16;
        V16 top = set(-INFINITY);
        for (int i = start; i < seen.last; i += 16) {
            V16 score = load(scores + i);
            if (bound > 0.0f) score = soft_cap(score, set(bound));
            score = within(score, i, seen, -INFINITY);
            store(scores + i, score);
            top = max(top, score);
        }
        summary[0] = largest(top);
        const V16 shift = set(summary[0]);
        V16 total = set(0.0f);
        for (int i = start; i < seen.last; i += 16) {
            const V16 weight = exponential(sub(load(scores + i), shift));
            store(weights + i, within(weight, i, seen, 0.0f));
            total = add(total, load(weights + i));
        }
        summary[1] = sum(total);
    }
};

void prepare(const float* query, int size, int padded, int number, void* queries) {
    float* to = static_cast<float*>(queries) + static_cast<size_t>(number) * padded;
    for (int d = 0; d < padded; ++d) to[d] = d < size ? query[d] : 0.0f;
}

}  // namespace

const AttentionKernels attention_kernels = {false, prepare, attend<Floats>, merge, finish};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
