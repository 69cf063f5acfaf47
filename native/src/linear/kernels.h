// Shared by the linear kernels: the job, and the kernel bodies as templates over an instruction
// set's vectors. Included only by the kernel files.
//
// A vector type V offers lanes for output rows of a tile, 16 or a part of them: F (float), I
// (int32) and B (4 bytes a lane as loaded; a lane is 4 bytes, 2 words or 1 int32).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine_constants.h"

namespace cassandra {

struct LinearJob {
    const uint8_t* tile;           // the first tile
    int64_t tiles;                 // number of tiles
    int64_t tile_bytes;            // stride of tiles
    int64_t last_lanes;            // outputs of the last tile, 1..16
    int64_t features;              // inputs as stored: a multiple of 32 (words) or of the group
    int32_t bias;                  // of a code, in the units of a sum (draft5, draft4)
    const uint16_t* table;         // 32 words (packed12, packed8)
    const void* x;                 // [rows, stride] in the input kind of the form
    const uint16_t* words;         // [rows, stride] BF16 patterns of x, if x are floats
    int64_t x_stride;              // row stride in values
    const float* scales;           // [panels, stored groups, 16], by row
    const int32_t* sums;           // [panels, stored groups, 16], by row
    int64_t panel_stride;          // panel stride in values
    int64_t group;                 // features of a scale
    const uint8_t* rest;           // second plane (planes): of the first tile,
    int64_t rest_bytes;            // stride of tiles,
    const uint8_t* patches;        // patches,
    const int64_t* patch_starts;   // the place of those of each pair of tiles,
    const uint16_t* patch_counts;  // and their number by pair and block of 32 features
    uint8_t* room;  // scratch for two tiles as BF16, aligned like tiles; null for few rows
    int rows;
    float* y;  // output of the first tile's first row
    int64_t y_stride;
};

using LinearKernel = void (*)(const LinearJob&);

// Kernels by form, and for groups of 32 and 64; of planes for drafts of 5 and 4 bits.
struct LinearKernels {
    LinearKernel of[7][2];
};

namespace portable {
extern const LinearKernels linear_kernels;
}
namespace avx2 {
extern const LinearKernels linear_kernels;
}
namespace avx512 {
extern const LinearKernels linear_kernels;
}
namespace neon {
extern const LinearKernels linear_kernels;
}
namespace neonbf16 {
extern const LinearKernels linear_kernels;
}
// Kernels of bf16, packed12, packed8 and of planes for drafts of 5 and 4 bits; the other forms use
// those of AVX-512.
namespace avx512bf16 {
extern const LinearKernel amx_kernels[5], dot_kernels[5];
}

// Return true if this process may use the matrix unit (linear/amx_avx512bf16.cpp).
bool has_amx();

// Return true if vdpbf16ps is issued as often as a fused multiply-add (linear/dots_avx512bf16.cpp):
// on Intel's processors it is issued half as often.
bool has_fast_dots();

namespace CASSANDRA_ISA {

#define CASSANDRA_UNROLL _Pragma("GCC unroll 16")
#define CASSANDRA_INLINE inline __attribute__((always_inline))

inline size_t scale_bytes(int64_t groups) { return static_cast<size_t>((16 * groups + 63) & ~63); }

// Prefetch lines some bytes ahead of data + at. Prefetches that a compiler groups, or that are not
// in address order, slow down reading from memory. So data passes through an instruction that is
// opaque to the compiler, which keeps loads from it before or after.
template <int kLines, int kAhead = 8192>
CASSANDRA_INLINE void prefetch_lines(const uint8_t*& data, int64_t at = 0) {
    CASSANDRA_UNROLL
    for (int line = 0; line < kLines; ++line)
        __builtin_prefetch(data + at + kAhead + 64 * line, 0, 3);
    __asm__ volatile("" : "+r"(data));
}

template <int N> struct Count {
    static constexpr int value = N;
};

// Base of vector types with 16 lanes.
struct WholeTiles {
    static constexpr int kParts = 1;                  // vectors of a tile
    static constexpr int32_t kCodeShift = 0;          // subtracted from codes before dot_u8
    static constexpr bool kAddsPairsOfCodes = false;  // dot_codes of codes that are not shifted
    static constexpr bool kMultipliesWords = false;   // without a conversion to floats
    static constexpr bool kMultipliesPairs = false;   // of outputs by pairs of rows
    static constexpr bool kLooksUpBytes = false;      // so a vector has the places of two words
    static constexpr bool kLooksUpNibbles = false;    // of 16 at a time, not of 32 (planes)
    template <int R, int N> static constexpr int kTogether = N;  // parts that share loads of input
    template <int R> static constexpr int kWordParts = 1;        // the same, of words
    template <int R> static constexpr bool kHalvesInTurn = false;  // even words, then odd ones
    static constexpr int kWords = 1;  // vectors of words that share a load of input

    // A row's next inputs, as they are multiplied: here each is loaded by its own product.
    template <class T> static const T* inputs(const T* x) { return x; }
    // Rearrange the words of two vectors, as dot_i16 multiplies them.
    template <class B> static void part_words(B&, B&) {}
};

// Lanes of a vector, and its bytes in a line.
template <class V> constexpr int kLanes = 16 / V::kParts;
template <class V> constexpr int kPartBytes = 64 / V::kParts;

// Call each(count, data, outputs, lanes of the last) for tiles as stored in memory: pairs of tiles
// with alternating lines, and a single tile at the end of an odd number.
template <class Each> void for_tiles(const LinearJob& job, Each each) {
    const uint8_t* data = job.tile;
    float* y = job.y;
    int64_t left = job.tiles;
    for (; left > 1; left -= 2, data += 2 * job.tile_bytes, y += 32)
        each(Count<2>(), data, y, left > 2 ? 16 : job.last_lanes);
    if (left) each(Count<1>(), data, y, job.last_lanes);
}

// -- words --
// A block of a form is 8 features: four vectors of words, features k and k + 1 in each lane. With N
// tiles, every N-th line belongs to a tile.

template <class V> struct Bf16 {
    static constexpr int kBytes = 256;
    static constexpr bool kPrefetched = true, kIsWords = true;

    struct Table {};
    static Table table(const LinearJob&) { return {}; }

    template <int N>
    static void decode(const uint8_t* data, const Table&, typename V::B (&words)[4]) {
        CASSANDRA_UNROLL
        for (int c = 0; c < 4; ++c) words[c] = V::load(data + 64 * N * c);
    }
};

// Look up words by bits 3..0 of `high`, which are bits 11..8 of `low`.
template <class V>
CASSANDRA_INLINE typename V::B look_up_second(const typename V::Table& table,
                                              const typename V::B& low, const typename V::B& high) {
    if constexpr (V::kLooksUpBytes)
        return V::lookup_second(table, low);
    else
        return V::lookup(table, high);
}

// Words of vectors 0 and 1, of 2 and 3 (one: bits 15, 6..0; the other: bits 7, 14..8), places.
template <class V> struct Packed12 {
    static constexpr int kBytes = 192;
    static constexpr bool kPrefetched = true, kIsWords = false;

    static typename V::Table table(const LinearJob& job) { return V::load_table(job.table); }

    template <int N>
    static void decode(const uint8_t* data, const typename V::Table& table,
                       typename V::B (&words)[4]) {
        const typename V::B own = V::words(0x807F), places = V::load(data + 128 * N);
        const typename V::B first = V::load(data), second = V::load(data + 64 * N);
        const typename V::B next = V::template shift<-4>(places);
        words[0] = V::select(own, first, V::lookup(table, places));
        words[1] = V::select(own, V::swap_bytes(first), V::lookup(table, next));
        words[2] =
            V::select(own, second, look_up_second<V>(table, places, V::template shift<-8>(places)));
        words[3] = V::select(own, V::swap_bytes(second),
                             look_up_second<V>(table, next, V::template shift<-12>(places)));
    }
};

// Bits 3..0 place a, 6..4 mantissa a, 7 sign b, 11..8 place b, 14..12 mantissa b, 15 sign a.
template <class V> struct Packed8 {
    static constexpr int kBytes = 128;
    static constexpr bool kPrefetched = true, kIsWords = false;

    static typename V::Table table(const LinearJob& job) { return V::load_table(job.table); }

    template <int N>
    static void decode(const uint8_t* data, const typename V::Table& table,
                       typename V::B (&words)[4]) {
        const typename V::B own = V::words(0x8070);
        CASSANDRA_UNROLL
        for (int half = 0; half < 2; ++half) {
            const typename V::B one = V::load(data + 64 * N * half), other = V::swap_bytes(one);
            words[2 * half] = V::select(own, one, V::lookup(table, one));
            words[2 * half + 1] = V::select(own, other, look_up_second<V>(table, one, other));
        }
    }
};

// Summation orders for R rows of input and N tiles, each of V::kParts parts. `add` processes 32
// features from k on, which are four blocks per tile.

// Separate products of even and odd features: each run of 32 features starts at zero and is then
// added to the total. This is the order of a matrix unit (linear/amx_avx512bf16.cpp).
template <class V, int R, int N> struct Halves {
    static constexpr int kMostRows = V::kRows;

    using Input = std::conditional_t<V::kMultipliesWords, uint16_t, float>;

    static const Input* input(const LinearJob& job) {
        if constexpr (V::kMultipliesWords)
            return job.words;
        else
            return static_cast<const float*>(job.x);
    }

    static constexpr int T = V::template kWordParts<R>;  // parts multiplied together
    static_assert(V::kParts % T == 0, "parts together are of one tile");

    template <class Block, class Table>
    static CASSANDRA_INLINE void add(typename V::F (&total)[N * V::kParts][R], const uint8_t* data,
                                     const Table& table, const Input* const* x, int64_t k) {
        if constexpr (V::template kHalvesInTurn<R> && Block::kIsWords)
            return add_in_turn<Block>(total, data, x, k);
        CASSANDRA_UNROLL
        for (int tile = 0; tile < N; ++tile)
            for (int first = 0; first < V::kParts; first += T) {
                typename V::F even[T][R], odd[T][R];
                CASSANDRA_UNROLL
                for (int r = 0; r < R; ++r)
                    for (int t = 0; t < T; ++t) even[t][r] = odd[t][r] = V::zero();
                for (int block = 0; block < 4; ++block) {
                    typename V::B words[T][4];
                    if (Block::kPrefetched && first == 0)
                        prefetch_lines<Block::kBytes / 64>(data,
                                                           Block::kBytes * (4 * tile + block));
                    CASSANDRA_UNROLL
                    for (int t = 0; t < T; ++t)
                        Block::template decode<N>(data + N * Block::kBytes * block + 64 * tile +
                                                      kPartBytes<V> * (first + t),
                                                  table, words[t]);
                    CASSANDRA_UNROLL
                    for (int c = 0; c < 4; c += V::kWords)
                        multiply(words, c, x, k + 8 * block + 2 * c, even, odd);
                }
                CASSANDRA_UNROLL
                for (int t = 0; t < T; ++t) {
                    typename V::F* sums = total[tile * V::kParts + first + t];
                    CASSANDRA_UNROLL
                    for (int r = 0; r < R; ++r)
                        sums[r] = V::add(sums[r], V::add(even[t][r], odd[t][r]));
                }
            }
    }

    // With half the sums at a time in registers, all parts of a tile share each load of input.
    template <class Block>
    static CASSANDRA_INLINE void add_in_turn(typename V::F (&total)[N * V::kParts][R],
                                             const uint8_t* data, const Input* const* x,
                                             int64_t k) {
        CASSANDRA_UNROLL
        for (int tile = 0; tile < N; ++tile) {
            typename V::F even[V::kParts][R], odd[V::kParts][R];
            multiply_half<Block, 0>(data, tile, x, k, even);
            multiply_half<Block, 1>(data, tile, x, k + 1, odd);
            CASSANDRA_UNROLL
            for (int t = 0; t < V::kParts; ++t)
                for (int r = 0; r < R; ++r) {
                    typename V::F& sum = total[tile * V::kParts + t][r];
                    sum = V::add(sum, V::add(even[t][r], odd[t][r]));
                }
        }
    }

    template <class Block, int HALF>
    static CASSANDRA_INLINE void multiply_half(const uint8_t* data, int tile, const Input* const* x,
                                               int64_t k, typename V::F (&sums)[V::kParts][R]) {
        CASSANDRA_UNROLL
        for (int t = 0; t < V::kParts; ++t)
            for (int r = 0; r < R; ++r) sums[t][r] = V::zero();
        for (int block = 0; block < 4; ++block) {
            if (Block::kPrefetched && HALF == 0) prefetch_lines<4>(data, 256 * (4 * tile + block));
            CASSANDRA_UNROLL
            for (int c = 0; c < 4; ++c) {
                typename V::F words[V::kParts];
                CASSANDRA_UNROLL
                for (int t = 0; t < V::kParts; ++t) {
                    const typename V::B both =
                        V::load(data + 64 * N * (4 * block + c) + 64 * tile + kPartBytes<V> * t);
                    words[t] = HALF ? V::high_words(both) : V::low_words(both);
                }
                CASSANDRA_UNROLL
                for (int r = 0; r < R; ++r) {
                    const typename V::F input = V::floats(x[r][k + 8 * block + 2 * c]);
                    CASSANDRA_UNROLL
                    for (int t = 0; t < V::kParts; ++t)
                        sums[t][r] = V::multiply_add(words[t], input, sums[t][r]);
                }
            }
        }
    }

    static CASSANDRA_INLINE void multiply(const typename V::B (&words)[T][4], int c,
                                          const Input* const* x, int64_t at,
                                          typename V::F (&even)[T][R], typename V::F (&odd)[T][R]) {
        if constexpr (V::kMultipliesWords) {
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r)
                for (int t = 0; t < T; ++t)
                    V::multiply_add_words(words[t] + c, x[r] + at, even[t][r], odd[t][r]);
        } else {
            typename V::F low[T][V::kWords], high[T][V::kWords];
            CASSANDRA_UNROLL
            for (int t = 0; t < T; ++t)
                for (int w = 0; w < V::kWords; ++w) {
                    low[t][w] = V::low_words(words[t][c + w]);
                    high[t][w] = V::high_words(words[t][c + w]);
                }
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r) {
                const auto inputs = V::inputs(x[r] + at);
                CASSANDRA_UNROLL
                for (int w = 0; w < V::kWords; ++w)
                    for (int t = 0; t < T; ++t) {
                        even[t][r] =
                            V::multiply_add(low[t][w], V::floats(inputs[2 * w]), even[t][r]);
                        odd[t][r] =
                            V::multiply_add(high[t][w], V::floats(inputs[2 * w + 1]), odd[t][r]);
                    }
            }
        }
    }
};

// Store the outputs of N tiles; the last tile has this many lanes.
template <class V, int N, class Result>
inline void store_tiles(float* y, int64_t last_lanes, Result result) {
    CASSANDRA_UNROLL
    for (int tile = 0; tile < N; ++tile, y += 16) {
        const bool whole = tile + 1 < N || last_lanes == 16;
        float all[16];
        float* const to = whole ? y : all;
        CASSANDRA_UNROLL
        for (int part = 0; part < V::kParts; ++part)
            V::store(to + kLanes<V> * part, result(tile * V::kParts + part));
        if (!whole) std::memcpy(y, all, static_cast<size_t>(last_lanes) * sizeof(float));
    }
}

// The blocks of 32 features of N tiles, where they are stored.
template <int BYTES> struct InPlace {
    template <int N> class Of {
      public:
        Of(const LinearJob&, const uint8_t* data) : data_(data) {}
        const uint8_t* next() { return (data_ += N * BYTES) - N * BYTES; }

      private:
        const uint8_t* data_;
    };
};

// Multiply tiles of words, summing in the order of `Sums`.
template <class V, template <class> class Block, template <class, int, int> class Sums,
          class Source = InPlace<4 * Block<V>::kBytes>>
struct Words {
    static constexpr int kMostRows = Sums<V, 1, 1>::kMostRows;

    template <int R, int N>
    static void tiles(const LinearJob& job, const uint8_t* data, int row, float* y, int64_t lanes) {
        using Order = Sums<V, R, N>;
        typename Source::template Of<N> source(job, data);
        const auto table = Block<V>::table(job);
        decltype(Order::input(job)) x[R];
        typename V::F total[N * V::kParts][R];
        for (int r = 0; r < R; ++r) {
            x[r] = Order::input(job) + (row + r) * job.x_stride;
            for (auto& part : total) part[r] = V::zero();
        }
        for (int64_t k = 0; k < job.features; k += 32)
            Order::template add<Block<V>>(total, source.next(), table, x, k);
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r)
            store_tiles<V, N>(y + (row + r) * job.y_stride, lanes,
                              [&](int part) { return total[part][r]; });
    }
};

// -- integers --
// A block is 32 features. T parts of N tiles are multiplied together, from part `first` on. Sums
// are indexed by part and row of input; `x` is the input and `at` the place of the block in it, in
// units of four bytes.

// Codes of `BITS` bits. Bytes of 4 features a lane: vector 2p in the low nibbles of row p, 2p + 1
// in the high. Codes of five bits are read as 8 times themselves. The fifth (16) of code 2p is at
// bit 7 - p of the last row, the lowest of code 2p + 1 at bit 3 - p. Codes of four bits, without
// the last row, are read as 16 times themselves.
template <class V, int R, int N, int T, int BITS> struct Draft {
    static constexpr int kBytes = 64 * BITS, kWidth = 1;
    static constexpr int32_t kShift = V::kCodeShift;
    static constexpr bool kPaired = V::kMultipliesPairs && R > 1;
    static constexpr bool kBiased = true;
    static constexpr bool kSmall = V::kAddsPairsOfCodes;
    static constexpr int kUnit = kSmall ? 7 - BITS : 0;  // sums are divided by 2 to this power

    // Read codes as 2 times themselves.
    template <int p>
    static CASSANDRA_INLINE void decode_small(const uint8_t* data, typename V::B& low,
                                              typename V::B& high) {
        const typename V::B codes = V::load(data + 64 * N * p);
        low = V::bit_and(V::template shift<1>(codes), V::words(0x1E1E));
        if constexpr (BITS == 5) {
            const typename V::B fifth = V::template shift<p - 2>(V::load(data + 256 * N));
            low = V::bit_or(low, V::bit_and(fifth, V::words(0x2020)));
            high = V::bit_or(V::bit_and(V::template shift<-2>(codes), V::words(0x3C3C)),
                             V::bit_and(fifth, V::words(0x0202)));
        } else {
            high = V::bit_and(V::template shift<-3>(codes), V::words(0x1E1E));
        }
    }

    // Read codes, 8 or 16 times themselves.
    template <int p>
    static CASSANDRA_INLINE void split(const uint8_t* data, typename V::B& low,
                                       typename V::B& high) {
        const typename V::B codes = V::load(data + 64 * N * p);
        const typename V::B shifted = V::template shift<8 - BITS>(codes);
        if constexpr (BITS == 5) {
            const typename V::B fifth =
                V::bit_and(V::template shift<p>(V::load(data + 256 * N)), V::words(0x8888));
            low = V::select(V::words(0x7878), shifted, fifth);
            high = V::select(V::words(0xF0F0), codes, fifth);
        } else {
            low = V::bit_and(shifted, V::words(0xF0F0));
            high = V::bit_and(codes, V::words(0xF0F0));
        }
    }

    template <int p>
    static CASSANDRA_INLINE void decode(const uint8_t* data, typename V::B& low,
                                        typename V::B& high) {
        split<p>(data, low, high);
        if constexpr (kShift != 0) {
            low = V::shift_codes(low);
            high = V::shift_codes(high);
        }
    }

    template <int p>
    static CASSANDRA_INLINE void pair(typename V::I (&sums)[T][R], const uint8_t*& data, int first,
                                      const uint32_t* const* x, int64_t at) {
        typename V::B low[T], high[T];
        if (first == 0) prefetch_lines<N>(data, 64 * N * p);
        if (first == 0 && BITS == 5 && p == 3) prefetch_lines<N>(data, 256 * N);
        CASSANDRA_UNROLL
        for (int part = 0; part < T; ++part)
            if constexpr (kSmall)
                decode_small<p>(data + kPartBytes<V> * (first + part), low[part], high[part]);
            else
                decode<p>(data + kPartBytes<V> * (first + part), low[part], high[part]);
        if constexpr (kPaired) return pair_rows(sums, low, high, x, at + 2 * p);
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) {
            const auto inputs = V::inputs(x[r] + at + 2 * p);
            if constexpr (kSmall) {
                CASSANDRA_UNROLL
                for (int part = 0; part < T; ++part)
                    sums[part][r] = V::dot_codes(sums[part][r], low[part], high[part], inputs);
            } else {
                CASSANDRA_UNROLL
                for (int part = 0; part < T; ++part)
                    sums[part][r] = V::dot_u8(sums[part][r], low[part], inputs, 0);
                CASSANDRA_UNROLL
                for (int part = 0; part < T; ++part)
                    sums[part][r] = V::dot_u8(sums[part][r], high[part], inputs, 1);
            }
        }
    }

    // The first of two sums is of the first half of the outputs of a part and two rows.
    static CASSANDRA_INLINE void pair_rows(typename V::I (&sums)[T][R], typename V::B (&low)[T],
                                           typename V::B (&high)[T], const uint32_t* const* x,
                                           int64_t at) {
        CASSANDRA_UNROLL
        for (int part = 0; part < T; ++part) V::pair_outputs(low[part], high[part]);
        CASSANDRA_UNROLL
        for (int r = 0; r < R; r += 2) {
            const auto rows = V::load_rows(x[r] + at, x[r + 1] + at);
            CASSANDRA_UNROLL
            for (int part = 0; part < T; ++part) {
                sums[part][r] = V::multiply_pairs(sums[part][r], low[part], rows);
                sums[part][r + 1] = V::multiply_pairs(sums[part][r + 1], high[part], rows);
            }
        }
    }

    static CASSANDRA_INLINE void add(typename V::I (&sums)[T][R], const uint8_t*& data, int first,
                                     const uint32_t* const* x, int64_t at) {
        pair<0>(sums, data, first, x, at);
        pair<1>(sums, data, first, x, at);
        pair<2>(sums, data, first, x, at);
        pair<3>(sums, data, first, x, at);
    }
};

template <class V, int R, int N, int T> using Draft5 = Draft<V, R, N, T, 5>;
template <class V, int R, int N, int T> using Draft4 = Draft<V, R, N, T, 4>;

// 8 rows of magnitudes (low byte: pair 2v, high byte: pair 2v + 1), 16 masks of signs.
template <class V, int R, int N, int T> struct Mx {
    static constexpr int kBytes = 576, kWidth = 2;
    static constexpr int32_t kShift = 0;
    static constexpr bool kBiased = false, kPaired = false;
    static constexpr int kUnit = 0;

    static CASSANDRA_INLINE void add(typename V::I (&sums)[T][R], const uint8_t*& data, int first,
                                     const uint32_t* const* x, int64_t at) {
        CASSANDRA_UNROLL
        for (int v = 0; v < 8; ++v) {
            typename V::B even[T], odd[T];
            if (first == 0) prefetch_lines<N>(data, 64 * N * v);
            if (first == 0 && v == 7) prefetch_lines<N>(data, 512 * N);
            CASSANDRA_UNROLL
            for (int t = 0; t < T; ++t) {
                const int tile = (first + t) / V::kParts, part = (first + t) % V::kParts;
                uint32_t signs[2];
                std::memcpy(signs, data + 512 * N + 64 * tile + 8 * v, 8);
                const int own = 2 * kLanes<V> * part;
                const typename V::B both = V::load(data + 64 * N * v + kPartBytes<V> * (first + t));
                even[t] = V::negate(V::bit_and(both, V::words(0x00FF)), signs[0] >> own);
                odd[t] = V::negate(V::template shift<-8>(both), signs[1] >> own);
                V::part_words(even[t], odd[t]);
            }
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r) {
                const auto inputs = V::inputs(x[r] + at + 2 * v);
                CASSANDRA_UNROLL
                for (int part = 0; part < T; ++part)
                    sums[part][r] = V::dot_i16(sums[part][r], even[part], inputs, 0);
                CASSANDRA_UNROLL
                for (int part = 0; part < T; ++part)
                    sums[part][r] = V::dot_i16(sums[part][r], odd[part], inputs, 1);
            }
        }
    }
};

// Return the units of sum `r`.
template <class V, bool PAIRED> CASSANDRA_INLINE typename V::F unit_of(typename V::F unit, int r) {
    if constexpr (PAIRED)
        return r % 2 ? V::repeat_second_half(unit) : V::repeat_first_half(unit);
    else
        return unit;
}

// Multiply tiles of integers in groups of G features.
template <class V, int G, template <class, int, int, int> class Block> struct Codes {
    static constexpr int kMostRows = V::kCodeRows;
    static_assert(PANEL_ROWS % kMostRows == 0, "the rows of a turn are of one panel");

    template <int R, int N>
    static void tiles(const LinearJob& job, const uint8_t* data, int row, float* y, int64_t lanes) {
        constexpr int kAll = N * V::kParts, T = V::template kTogether<R, N>;
        static_assert(kAll % T == 0, "all parts are multiplied");
        constexpr bool kPaired = Block<V, R, N, T>::kPaired;
        constexpr int S = kPaired ? R + R % 2 : R;  // sums: an odd last row is there twice
        using Form = Block<V, S, N, T>;
        const auto of = [](const auto* of_rows, int r) {
            if constexpr (kPaired)
                return V::repeat_pair(of_rows + r / 2 * 2);
            else
                return of_rows[r];
        };
        const uint32_t* x[S];
        typename V::F total[kAll][S];
        for (int r = 0; r < S; ++r) {
            const int own = row + (r < R ? r : R - 1);
            x[r] = reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(job.x) +
                                                     Form::kWidth * own * job.x_stride);
            for (auto& part : total) part[r] = V::zero();
        }
        const typename V::I bias = V::integers(Form::kShift - (job.bias >> Form::kUnit));
        const int64_t groups = job.features / G;
        const int64_t in_panels = row / PANEL_ROWS * job.panel_stride + row % PANEL_ROWS;
        const float* scales = job.scales + in_panels;
        const int32_t* input_sums = job.sums + in_panels;
        const uint8_t* units = data;
        for (size_t line = 0; line < N * scale_bytes(groups); line += 64, data += 64)
            prefetch_lines<1>(data);
        int64_t at = 0;
        for (int64_t group = 0; group < groups; ++group) {
            const uint8_t* start = data;
            for (int first = 0; first < kAll; first += T) {
                typename V::I sums[T][S];
                CASSANDRA_UNROLL
                for (int r = 0; r < S; ++r) {
                    sums[0][r] =
                        Form::kBiased ? V::multiply(bias, of(input_sums, r)) : V::integers(0);
                    CASSANDRA_UNROLL
                    for (int part = 1; part < T; ++part) sums[part][r] = sums[0][r];
                }
                data = start;
                // All parts have the same inputs. Kept in registers, they would push out the sums.
                if constexpr (T < kAll && !kPaired) __asm__ volatile("" : : : "memory");
                CASSANDRA_UNROLL
                for (int block = 0; block < G / 32; ++block, data += N * Form::kBytes)
                    Form::add(sums, data, first, x, at + 8 * Form::kWidth * block);
                CASSANDRA_UNROLL
                for (int t = 0; t < T; ++t) {
                    const int tile = (first + t) / V::kParts, part = (first + t) % V::kParts;
                    const typename V::F unit = V::units(units + 64 * tile + kLanes<V> * part);
                    CASSANDRA_UNROLL
                    for (int r = 0; r < S; ++r) {
                        if constexpr (Form::kUnit > 0)
                            sums[t][r] = V::template times<Form::kUnit>(sums[t][r]);
                        total[first + t][r] =
                            V::multiply_add(V::scaled(sums[t][r], of(scales, r)),
                                            unit_of<V, kPaired>(unit, r), total[first + t][r]);
                    }
                }
            }
            at += 8 * Form::kWidth * (G / 32);
            units += group % 4 == 3 ? 64 * N - 48 : 16;
            scales += PANEL_ROWS;
            input_sums += PANEL_ROWS;
        }
        if constexpr (kPaired)
            for (auto& sums : total)
                for (int r = 0; r < S; r += 2) V::part_rows(sums[r], sums[r + 1]);
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r)
            store_tiles<V, N>(y + (row + r) * job.y_stride, lanes,
                              [&](int part) { return total[part][r]; });
    }
};

// Multiply N tiles with `count` rows, 1..R.
template <class T, int R, int N>
inline void some_rows(int count, const LinearJob& job, const uint8_t* data, int row, float* y,
                      int64_t lanes) {
    if constexpr (R > 1)
        if (count < R) return some_rows<T, R - 1, N>(count, job, data, row, y, lanes);
    T::template tiles<R, N>(job, data, row, y, lanes);
}

// Multiply N tiles with all rows, as many at a time as fit in registers.
template <class T, int N>
inline void all_rows(const LinearJob& job, const uint8_t* data, float* y, int64_t lanes) {
    constexpr int kMost = T::kMostRows;
    for (int row = 0; row < job.rows; row += kMost)
        some_rows<T, kMost, N>(job.rows - row, job, data, row, y, lanes);
}

template <class T> void run(const LinearJob& job) {
    for_tiles(job, [&](auto count, const uint8_t* data, float* y, int64_t last_lanes) {
        all_rows<T, decltype(count)::value>(job, data, y, last_lanes);
    });
}

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
