// Linear kernels for processors that multiply pairs of BF16 as fast as floats (Zen 4 and newer).
//
// vdpbf16ps adds the product of the odd features of a pair to a sum, then that of the even ones,
// rounding each step. It treats denormal inputs as zero and flushes denormal results. The same path
// serves every number of rows, so a row's result does not depend on it.
#include "linear/plane_kernels.h"
#include "linear/wide.h"

namespace cassandra {
namespace avx512bf16 {
namespace {

// One sum of all features, in order.
template <class V, int R, int N> struct PairSums {
    static constexpr int kMostRows = 8;

    static const uint16_t* input(const LinearJob& job) { return job.words; }

    template <class Block, class Table>
    static CASSANDRA_INLINE void add(__m512 (&total)[N][R], const uint8_t* data, const Table& table,
                                     const uint16_t* const* x, int64_t k) {
        for (int block = 0; block < 4; ++block, data += N * Block::kBytes, k += 8) {
            __m512i words[N][4];
            CASSANDRA_UNROLL
            for (int tile = 0; tile < N; ++tile)
                Block::template decode<N>(data + 64 * tile, table, words[tile]);
            CASSANDRA_UNROLL
            for (int c = 0; c < 4; ++c) {
                if (Block::kPrefetched && 64 * c < Block::kBytes)
                    prefetch_lines<N>(data, 64 * N * c);
                // A pass over one row is bound by memory: all its loads stay in order.
                if constexpr (R == 1) __asm__ volatile("" : : : "memory");
                CASSANDRA_UNROLL
                for (int r = 0; r < R; ++r) {
                    int pair;
                    std::memcpy(&pair, x[r] + k + 2 * c, sizeof pair);
                    const auto both = (__m512bh)_mm512_set1_epi32(pair);
                    CASSANDRA_UNROLL
                    for (int tile = 0; tile < N; ++tile)
                        total[tile][r] =
                            _mm512_dpbf16_ps(total[tile][r], (__m512bh)words[tile][c], both);
                }
            }
        }
    }
};

// Decode N tiles to BF16, in the same order.
template <template <class> class Block, int N>
void expand(const LinearJob& job, const uint8_t* data, uint8_t* to) {
    const auto table = Block<Wide>::table(job);
    for (int64_t k = 0; k < job.features; k += 8, data += N * Block<Wide>::kBytes, to += N * 256) {
        prefetch_lines<N * Block<Wide>::kBytes / 64>(data);
        CASSANDRA_UNROLL
        for (int tile = 0; tile < N; ++tile) {
            __m512i words[4];
            Block<Wide>::template decode<N>(data + 64 * tile, table, words);
            CASSANDRA_UNROLL
            for (int c = 0; c < 4; ++c) _mm512_store_si512(to + 64 * (N * c + tile), words[c]);
        }
    }
}

// Words are decoded once for many rows.
template <template <class> class Block> void run_words(const LinearJob& job) {
    if (!job.room) return run<Words<Wide, Block, PairSums>>(job);
    for_tiles(job, [&](auto count, const uint8_t* data, float* y, int64_t last_lanes) {
        constexpr int N = decltype(count)::value;
        expand<Block, N>(job, data, job.room);
        all_rows<Words<Wide, Lines, PairSums>, N>(job, job.room, y, last_lanes);
    });
}

}  // namespace

const LinearKernel dot_kernels[5] = {
    run<Words<Wide, Bf16, PairSums>>, run_words<Packed12>,           run_words<Packed8>,
    run_planes<Wide, 5, PairSums>,    run_planes<Wide, 4, PairSums>,
};

}  // namespace avx512bf16

bool has_fast_dots() {
    static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
    return has;
}

}  // namespace cassandra
