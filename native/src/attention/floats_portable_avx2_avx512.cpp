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
    static constexpr int kQueries = 6, kVectors = 4;
    template <int N> static constexpr int kBlocks = N <= 3 ? 2 : 4;
#else
    static constexpr int kQueries = 3, kVectors = 1;
    template <int N> static constexpr int kBlocks = 1;
#endif

    static float* weights(const ChunkJob& job) { return job.scores; }

    // A lane is a position: no sums across lanes.
    template <int N, int B>
    static void score(const float* queries, int padded, const uint16_t* keys, float* scores,
                      ptrdiff_t ahead) {
        V16 total[N][B];
        for (int q = 0; q < N; ++q)
            for (int b = 0; b < B; ++b) total[q][b] = set(0.0f);
        for (int d = 0; d < padded; d += 2)
            for (int b = 0; b < B; ++b) {
                V16 first, second;
                const uint16_t* line = keys + BLOCK * (b * padded + d);
                load_pairs(line, first, second);
                if (ahead) fetch<1>(line + ahead);
                for (int q = 0; q < N; ++q) {
                    const float* query = queries + q * padded + d;
                    total[q][b] = madd(first, set(query[0]), total[q][b]);
                    total[q][b] = madd(second, set(query[1]), total[q][b]);
                }
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
        for (int at = 0; at < count; at += 2)
            for (int v = 0; v < V; ++v) {
                V16 first, second;
                load_pairs(values + at * padded + 32 * v, first, second);
                if (ahead) fetch<1>(values + at * padded + 32 * v + ahead);
                for (int q = 0; q < N; ++q) {
                    const float* weight = weights + q * CHUNK + at;
                    total[q][v] = madd(first, set(weight[0]), total[q][v]);
                    if (at + 1 < count) total[q][v] = madd(second, set(weight[1]), total[q][v]);
                }
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
