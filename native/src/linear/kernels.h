// What the kernels of linear_*.cpp share: the job they are given, and their bodies as templates
// over the vectors of an instruction set. Included by those files alone.
//
// A vector type V offers 16 lanes, one for each output row of a tile: F (float), I (int32) and B
// (64 bytes as loaded; a lane is 4 bytes, 2 words or 1 int32).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cassandra {

constexpr int kMostRows = 8;

struct LinearJob {
    const uint8_t* tile;    // the first tile
    int64_t tiles;          // that many
    int64_t tile_bytes;     // from one to the next
    int64_t last_lanes;     // outputs of the last tile, 1..16
    int64_t features;       // in, as stored: a multiple of 32 (words) or of the group
    int32_t bias;           // of a code, in the units of a sum (draft5, draft4)
    const uint16_t* table;  // 32 words (packed12, packed8)
    const void* x;          // [rows, stride] as the form wants it
    const uint16_t* words;  // [rows, stride] BF16 patterns of x, where x are floats
    int64_t x_stride;       // values from row to row
    const float* scales;    // [rows, group_stride]
    const int32_t* sums;    // [rows, group_stride]
    int64_t group_stride;
    int rows;  // 1..8
    float* y;  // of the first tile's first output
    int64_t y_stride;
};

using LinearKernel = void (*)(const LinearJob&);

// By form, and for groups of 32 and 64.
struct LinearKernels {
    LinearKernel of[6][2];
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
namespace avx512bf16 {
extern const LinearKernels linear_kernels;
}

// Whether this process may use the matrix unit (linear/avx512bf16.cpp).
bool has_amx();

namespace CASSANDRA_ISA {

#define CASSANDRA_UNROLL _Pragma("GCC unroll 16")

inline size_t scale_bytes(int64_t groups) { return static_cast<size_t>((16 * groups + 63) & ~63); }

// The lines of a block, 8 KB ahead.
template <int kLines> inline void prefetch_lines(const uint8_t* data) {
    CASSANDRA_UNROLL
    for (int line = 0; line < kLines; ++line) __builtin_prefetch(data + 8192 + 64 * line, 0, 3);
}

// -- words --
// A block of a form is 8 features: four vectors of words, features k and k + 1 in each lane.

template <class V> struct Bf16 {
    static constexpr int kBytes = 256;

    struct Table {};
    static Table table(const LinearJob&) { return {}; }

    static void decode(const uint8_t* data, const Table&, typename V::B (&words)[4]) {
        CASSANDRA_UNROLL
        for (int c = 0; c < 4; ++c) words[c] = V::load(data + 64 * c);
    }
};

// Words of vectors 0 and 1, of 2 and 3 (one: bits 15, 6..0; the other: bits 7, 14..8), places.
template <class V> struct Packed12 {
    static constexpr int kBytes = 192;

    static typename V::Table table(const LinearJob& job) { return V::load_table(job.table); }

    static void decode(const uint8_t* data, const typename V::Table& table,
                       typename V::B (&words)[4]) {
        const typename V::B own = V::words(0x807F), places = V::load(data + 128);
        const typename V::B first = V::load(data), second = V::load(data + 64);
        words[0] = V::select(own, first, V::lookup(table, places));
        words[1] =
            V::select(own, V::swap_bytes(first), V::lookup(table, V::template shift<-4>(places)));
        words[2] = V::select(own, second, V::lookup(table, V::template shift<-8>(places)));
        words[3] =
            V::select(own, V::swap_bytes(second), V::lookup(table, V::template shift<-12>(places)));
    }
};

// Bits 3..0 place a, 6..4 mantissa a, 7 sign b, 11..8 place b, 14..12 mantissa b, 15 sign a.
template <class V> struct Packed8 {
    static constexpr int kBytes = 128;

    static typename V::Table table(const LinearJob& job) { return V::load_table(job.table); }

    static void decode(const uint8_t* data, const typename V::Table& table,
                       typename V::B (&words)[4]) {
        const typename V::B own = V::words(0x8070);
        CASSANDRA_UNROLL
        for (int half = 0; half < 2; ++half) {
            const typename V::B one = V::load(data + 64 * half), other = V::swap_bytes(one);
            words[2 * half] = V::select(own, one, V::lookup(table, one));
            words[2 * half + 1] = V::select(own, other, V::lookup(table, other));
        }
    }
};

// Sums of the products of even and of odd features: each 32 features start at zero, and are then
// added to the total. It is the order of a matrix unit (linear/avx512bf16.cpp).
template <class V, int R> struct Halves {
    typename V::F even[R], odd[R];

    Halves() {
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) even[r] = odd[r] = V::zero();
    }

    void add(typename V::B words, const float* const* x, int64_t k) {
        const typename V::F high = V::high_words(words), low = V::low_words(words);
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) {
            even[r] = V::multiply_add(low, V::floats(x[r][k]), even[r]);
            odd[r] = V::multiply_add(high, V::floats(x[r][k + 1]), odd[r]);
        }
    }
};

template <class V> inline void store_lanes(float* y, typename V::F value, int64_t lanes) {
    if (lanes == 16) {
        V::store(y, value);
    } else {
        float all[16];
        V::store(all, value);
        std::memcpy(y, all, static_cast<size_t>(lanes) * sizeof(float));
    }
}

template <class V, template <class> class Block> struct Words {
    template <int R>
    static void tile(const LinearJob& job, const uint8_t* data, int row, float* y, int64_t lanes) {
        constexpr int kBytes = Block<V>::kBytes;
        const float* x[R];
        typename V::F total[R];
        const auto table = Block<V>::table(job);
        for (int r = 0; r < R; ++r) {
            x[r] = static_cast<const float*>(job.x) + (row + r) * job.x_stride;
            total[r] = V::zero();
        }
        for (int64_t k = 0; k < job.features;) {
            Halves<V, R> sums;
            for (int block = 0; block < 4; ++block, k += 8, data += kBytes) {
                typename V::B words[4];
                prefetch_lines<kBytes / 64>(data);
                Block<V>::decode(data, table, words);
                CASSANDRA_UNROLL
                for (int c = 0; c < 4; ++c) sums.add(words[c], x, k + 2 * c);
            }
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r)
                total[r] = V::add(total[r], V::add(sums.even[r], sums.odd[r]));
        }
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) store_lanes<V>(y + (row + r) * job.y_stride, total[r], lanes);
    }
};

// -- integers --

template <class V, int R> struct Sums {
    typename V::I low[R], high[R];
};

// 32 features of `BITS` bits. Bytes of 4 features a lane: vector 2p in the low nibbles of row p,
// 2p + 1 in the high. Code 2p of five bits has its fifth (16) at bit 2p + 1 of the last row; code
// 2p + 1, which is read as 8 times itself, its lowest at bit 2p. Of four bits, without the last
// row, high codes are read as 16 times themselves.
template <class V, int R, int BITS> struct Draft {
    static constexpr int kBytes = 64 * BITS, kShift = 8 - BITS, kWidth = 1;

    template <int p>
    static void pair(Sums<V, R>& sums, const uint8_t* data, const uint32_t* const* x) {
        const typename V::B codes = V::load(data + 64 * p);
        typename V::B low, high;
        if constexpr (BITS == 5) {
            const typename V::B fifth =
                V::bit_and(V::template shift<3 - 2 * p>(V::load(data + 256)), V::words(0x1818));
            low = V::select(V::words(0x0F0F), codes, fifth);
            high = V::select(V::words(0xF0F0), codes, fifth);
        } else {
            low = V::bit_and(codes, V::words(0x0F0F));
            high = V::bit_and(codes, V::words(0xF0F0));
        }
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) {
            sums.low[r] = V::dot_u8(sums.low[r], low, x[r][2 * p]);
            sums.high[r] = V::dot_u8(sums.high[r], high, x[r][2 * p + 1]);
        }
    }

    static void add(Sums<V, R>& sums, const uint8_t* data, const uint32_t* const* x) {
        pair<0>(sums, data, x);
        pair<1>(sums, data, x);
        pair<2>(sums, data, x);
        pair<3>(sums, data, x);
    }
};

template <class V, int R> using Draft5 = Draft<V, R, 5>;
template <class V, int R> using Draft4 = Draft<V, R, 4>;

// 32 features: 8 rows of magnitudes (low byte: pair 2v, high byte: pair 2v + 1), 16 masks of signs.
template <class V, int R> struct Mx {
    static constexpr int kBytes = 576, kShift = 0, kWidth = 2;

    static void add(Sums<V, R>& sums, const uint8_t* data, const uint32_t* const* x) {
        CASSANDRA_UNROLL
        for (int v = 0; v < 8; ++v) {
            uint32_t signs[2];
            std::memcpy(signs, data + 512 + 8 * v, 8);
            const typename V::B both = V::load(data + 64 * v);
            const typename V::B even = V::negate(V::bit_and(both, V::words(0x00FF)), signs[0]);
            const typename V::B odd = V::negate(V::template shift<-8>(both), signs[1]);
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r) {
                sums.low[r] = V::dot_i16(sums.low[r], even, x[r][2 * v]);
                sums.high[r] = V::dot_i16(sums.high[r], odd, x[r][2 * v + 1]);
            }
        }
    }
};

// Tiles of integers in groups of G features.
template <class V, int G, template <class, int> class Block> struct Codes {
    template <int R>
    static void tile(const LinearJob& job, const uint8_t* data, int row, float* y, int64_t lanes) {
        using Form = Block<V, R>;
        const uint32_t* x[R];
        const float* scales[R];
        const int32_t* sums[R];
        typename V::F total[R];
        for (int r = 0; r < R; ++r) {
            x[r] = reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(job.x) +
                                                     Form::kWidth * (row + r) * job.x_stride);
            scales[r] = job.scales + (row + r) * job.group_stride;
            sums[r] = job.sums + (row + r) * job.group_stride;
            total[r] = V::zero();
        }
        const uint8_t* units = data;
        const int64_t groups = job.features / G;
        data += scale_bytes(groups);
        for (int64_t group = 0; group < groups; ++group) {
            Sums<V, R> part;
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r) {
                part.low[r] = V::integers(0);
                part.high[r] = V::integers(-job.bias * sums[r][group]);
            }
            CASSANDRA_UNROLL
            for (int block = 0; block < G / 32; ++block, data += Form::kBytes) {
                prefetch_lines<Form::kBytes / 64>(data);
                Form::add(part, data, x);
                CASSANDRA_UNROLL
                for (int r = 0; r < R; ++r) x[r] += 8 * Form::kWidth;
            }
            const typename V::F unit = V::units(units + 16 * group);
            CASSANDRA_UNROLL
            for (int r = 0; r < R; ++r) {
                const typename V::I sum =
                    V::add(V::template shift_lanes<Form::kShift>(part.low[r]), part.high[r]);
                total[r] = V::multiply_add(V::scaled(sum, scales[r][group]), unit, total[r]);
            }
        }
        CASSANDRA_UNROLL
        for (int r = 0; r < R; ++r) store_lanes<V>(y + (row + r) * job.y_stride, total[r], lanes);
    }
};

// A tile for all rows before the next tile, as many rows at a time as fit in registers.
template <class V, class T> void run(const LinearJob& job) {
    const uint8_t* data = job.tile;
    float* y = job.y;
    for (int64_t tile = 0; tile < job.tiles; ++tile, data += job.tile_bytes, y += 16) {
        const int64_t lanes = tile + 1 < job.tiles ? 16 : job.last_lanes;
        int row = 0;
        if constexpr (V::kRows >= 4)
            for (; row + 4 <= job.rows; row += 4) T::template tile<4>(job, data, row, y, lanes);
        if constexpr (V::kRows >= 3)
            for (; row + 3 <= job.rows; row += 3) T::template tile<3>(job, data, row, y, lanes);
        if constexpr (V::kRows >= 2)
            for (; row + 2 <= job.rows; row += 2) T::template tile<2>(job, data, row, y, lanes);
        for (; row < job.rows; ++row) T::template tile<1>(job, data, row, y, lanes);
    }
}

template <class V> constexpr LinearKernels make_kernels() {
    constexpr auto bf16 = run<V, Words<V, Bf16>>, packed12 = run<V, Words<V, Packed12>>,
                   packed8 = run<V, Words<V, Packed8>>;
    return {{{bf16, bf16},
             {packed12, packed12},
             {packed8, packed8},
             {run<V, Codes<V, 32, Draft5>>, run<V, Codes<V, 64, Draft5>>},
             {run<V, Codes<V, 32, Draft4>>, run<V, Codes<V, 64, Draft4>>},
             {run<V, Codes<V, 32, Mx>>, run<V, Codes<V, 64, Mx>>}}};
}

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
