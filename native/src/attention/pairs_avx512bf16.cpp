// Attention by dot products of BF16 pairs (vdpbf16ps): queries and weights are rounded to BF16,
// sums are float32. The sum of weights adds the rounded weights.

#include <cmath>

#include <immintrin.h>

#include "attention/chunk.h"

namespace cassandra {
namespace avx512bf16 {
namespace {

inline __m512bh broadcast_pair(const uint16_t* p) {
    int pair;
    std::memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

inline __mmask16 lanes_within(int at, Span span) {
    const int first = std::max(span.first - at, 0), last = std::min(span.last - at, 16);
    return static_cast<__mmask16>((0xFFFFu >> (16 - last)) & (0xFFFFu << first));
}

// Return e^x for x <= 0, within a relative error of 2^-20.
inline __m512 power(__m512 x) {
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(1.5403530e-4f);
    for (float c :
         {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(p, n);
}

struct Pairs {
    using Query = uint16_t;
    using Weight = uint16_t;

    static constexpr int kQueries = 6;
    template <int N> static constexpr int kBlocks = N <= 3 ? 2 : 4;
    template <int N> static constexpr int kVectors = 4;

    static uint16_t* weights(const ChunkJob& job) { return job.weights; }

    // A lane is a position: no sums across lanes.
    template <int N, int B>
    static void score(const uint16_t* queries, int padded, const uint16_t* keys, float* scores,
                      ptrdiff_t ahead) {
        __m512 total[N][B];
        for (int q = 0; q < N; ++q)
            for (int b = 0; b < B; ++b) total[q][b] = _mm512_setzero_ps();
        for (int d = 0; d < padded; d += 2) {
            __m512bh key[B];
            for (int b = 0; b < B; ++b) {
                const uint16_t* line = keys + BLOCK * (b * padded + d);
                key[b] = (__m512bh)_mm512_loadu_si512(line);
                if (ahead) fetch<1>(line + ahead);
            }
            for (int q = 0; q < N; ++q) {
                const __m512bh query = broadcast_pair(queries + q * padded + d);
                for (int b = 0; b < B; ++b)
                    total[q][b] = _mm512_dpbf16_ps(total[q][b], key[b], query);
            }
        }
        for (int q = 0; q < N; ++q)
            for (int b = 0; b < B; ++b)
                _mm512_storeu_ps(scores + q * CHUNK + b * BLOCK, total[q][b]);
    }

    template <int N, int V>
    static void blend(const uint16_t* weights, const uint16_t* values, int padded, int count,
                      float* blends, size_t apart, ptrdiff_t ahead) {
        __m512 total[N][V];
        for (int q = 0; q < N; ++q)
            for (int v = 0; v < V; ++v) total[q][v] = _mm512_loadu_ps(blends + q * apart + 16 * v);
        const auto add = [&](int at, __m512i mask) {
            __m512bh value[V];
            for (int v = 0; v < V; ++v) {
                const uint16_t* line = values + at * padded + 32 * v;
                const __m512i bits = _mm512_loadu_si512(line);
                if (ahead) fetch<1>(line + ahead);
                value[v] = (__m512bh)_mm512_and_si512(bits, mask);
            }
            for (int q = 0; q < N; ++q) {
                const __m512bh weight = broadcast_pair(weights + q * CHUNK + at);
                for (int v = 0; v < V; ++v)
                    total[q][v] = _mm512_dpbf16_ps(total[q][v], value[v], weight);
            }
        };
        for (int at = 0; at + 1 < count; at += 2) add(at, _mm512_set1_epi32(-1));
        if (count % 2) add(count - 1, _mm512_set1_epi32(0xFFFF));
        for (int q = 0; q < N; ++q)
            for (int v = 0; v < V; ++v) _mm512_storeu_ps(blends + q * apart + 16 * v, total[q][v]);
    }

    // Call f(start, lanes) for the vectors of a span.
    template <class F> static void each_vector(Span span, F f) {
        int i = span.first / 16 * 16;
        if (i < span.first) f(i, lanes_within(i, span)), i += 16;
        for (; i + 16 <= span.last; i += 16) f(i, __mmask16{0xFFFF});
        if (i < span.last) f(i, lanes_within(i, span));
    }

    static void soften(float* scores, Span seen, float bound, uint16_t* weights, float* summary) {
        if (bound > 0.0f)
            each_vector(seen, [&](int i, __mmask16) {
                store(scores + i, soft_cap(load(scores + i), set(bound)));
            });
        const __m512 nothing = _mm512_set1_ps(-INFINITY);
        __m512 top = nothing;
        each_vector(seen, [&](int i, __mmask16 lanes) {
            const __m512 score = _mm512_mask_loadu_ps(nothing, lanes, scores + i);
            top = _mm512_max_ps(top, score);
        });
        summary[0] = _mm512_reduce_max_ps(top);
        const __m512 shift = _mm512_set1_ps(summary[0]);
        __m512 total = _mm512_setzero_ps();
        each_vector(seen, [&](int i, __mmask16 lanes) {
            const __m512 score = _mm512_maskz_loadu_ps(lanes, scores + i);
            const __m512 weight = _mm512_maskz_mov_ps(lanes, power(_mm512_sub_ps(score, shift)));
            const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(weight);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + i), rounded);
            const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16);
            total = _mm512_add_ps(total, _mm512_castsi512_ps(bits));
        });
        summary[1] = sum({total});
    }
};

void prepare(const float* query, int size, int padded, int number, void* queries) {
    uint16_t* to = static_cast<uint16_t*>(queries) + static_cast<size_t>(number) * padded;
    for (int d = 0; d < padded; d += 16) {
        const int left = std::min(size - d, 16);
        const __m512 part = _mm512_maskz_loadu_ps(lanes_within(0, {0, left}), query + d);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d), (__m256i)_mm512_cvtneps_pbh(part));
    }
}

}  // namespace

const AttentionKernels attention_kernels = {true, prepare, attend<Pairs>, merge, finish};

}  // namespace avx512bf16
}  // namespace cassandra
