// Linear kernels for AVX2. A vector has eight of the 16 lanes of a tile, so that the sums of six
// rows fit in the registers, even and odd words in turn, or those of four rows of codes.
#include <immintrin.h>

#include "linear/every_form.h"

namespace cassandra {
namespace avx2 {
namespace {

struct Half : WholeTiles {
    static constexpr int kParts = 2, kRows = 6, kCodeRows = 4;
    static constexpr bool kAddsPairsOfCodes = true, kLooksUpNibbles = true;
    template <int R, int N> static constexpr int kTogether = R == 1 ? 2 * N : 2;
    template <int R> static constexpr int kWordParts = R <= 2 ? 2 : 1;
    template <int R> static constexpr bool kHalvesInTurn = R > 2;

    using F = __m256;
    using I = __m256i;
    using B = __m256i;
    struct Table {
        __m256i low, high;  // octets of the words
    };

    static F zero() { return _mm256_setzero_ps(); }
    static I integers(int32_t x) { return _mm256_set1_epi32(x); }
    static B words(uint16_t x) { return _mm256_set1_epi16(static_cast<int16_t>(x)); }
    static B load(const uint8_t* p) {
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    }
    static void store(float* y, F a) { _mm256_storeu_ps(y, a); }

    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static I add(I a, I b) { return _mm256_add_epi32(a, b); }
    static F multiply_add(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F scaled(I a, float s) {
        return _mm256_mul_ps(_mm256_cvtepi32_ps(a), _mm256_set1_ps(s));
    }
    static I multiply(I a, int32_t x) { return _mm256_mullo_epi32(a, _mm256_set1_epi32(x)); }
    static F units(const uint8_t* p) {
        const __m128i octets = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(octets), 23));
    }

    static B bit_and(B a, B b) { return _mm256_and_si256(a, b); }
    static B bit_or(B a, B b) { return _mm256_or_si256(a, b); }
    static B select(B mask, B a, B b) {
        return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
    }
    template <int n> static B shift(B a) {
        if constexpr (n >= 0)
            return _mm256_slli_epi16(a, n);
        else
            return _mm256_srli_epi16(a, -n);
    }
    static B swap_bytes(B a) {
        return _mm256_or_si256(_mm256_slli_epi16(a, 8), _mm256_srli_epi16(a, 8));
    }
    static Table load_table(const uint16_t* table) {
        alignas(16) uint8_t low[16], high[16];
        for (int i = 0; i < 16; ++i) {
            low[i] = static_cast<uint8_t>(table[i]);
            high[i] = static_cast<uint8_t>(table[i] >> 8);
        }
        return {_mm256_broadcastsi128_si256(*reinterpret_cast<const __m128i*>(low)),
                _mm256_broadcastsi128_si256(*reinterpret_cast<const __m128i*>(high))};
    }
    // Byte 1 of a word of places is 128, for which a shuffle gives 0.
    static B lookup(const Table& table, B places) {
        const __m256i nibble = _mm256_and_si256(places, words(15));
        const __m256i none = words(0x8000);
        const __m256i low = _mm256_shuffle_epi8(table.low, _mm256_or_si256(nibble, none));
        const __m256i high = _mm256_shuffle_epi8(table.high, _mm256_or_si256(nibble, none));
        return _mm256_or_si256(low, _mm256_slli_epi16(high, 8));
    }
    // Tables of a nibble of a code of five bits, by its other bit: of the lower four bits, then of
    // the upper four. Of codes of four bits, the first.
    struct Highs {
        __m256i of[2][2];
    };
    static Highs load_highs(const uint8_t (&all)[32]) {
        Highs highs;
        for (int other = 0; other < 2; ++other) {
            alignas(16) uint8_t lower[16], upper[16];
            for (int i = 0; i < 16; ++i) {
                lower[i] = all[16 * other + i];
                upper[i] = all[2 * i + other];
            }
            highs.of[0][other] = repeated(lower);
            highs.of[1][other] = repeated(upper);
        }
        return highs;
    }
    static __m256i repeated(const uint8_t (&table)[16]) {
        return _mm256_broadcastsi128_si256(*reinterpret_cast<const __m128i*>(table));
    }
    template <int BITS, int p>
    static void look_up_nibbles(const Highs& highs, const uint8_t* codes, const uint8_t* others,
                                B (&result)[2]) {
        const __m256i both = by_pairs(load(codes)), nibble = _mm256_set1_epi8(15);
        const __m256i first = _mm256_and_si256(both, nibble);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        result[0] = _mm256_shuffle_epi8(highs.of[0][0], first);
        if constexpr (BITS == 4) {
            result[1] = _mm256_shuffle_epi8(highs.of[0][0], second);
        } else {
            const __m256i other = by_pairs(load(others));  // bits 7 - p and 3 - p
            result[0] = _mm256_blendv_epi8(result[0], _mm256_shuffle_epi8(highs.of[0][1], first),
                                           _mm256_slli_epi16(other, p));
            result[1] = _mm256_blendv_epi8(_mm256_shuffle_epi8(highs.of[1][0], second),
                                           _mm256_shuffle_epi8(highs.of[1][1], second),
                                           _mm256_slli_epi16(other, 4 + p));
        }
    }
    static void group_sums(const uint8_t* p, int sum, B& high, B& offset) {
        const __m128i units = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        const __m128i sums = _mm_add_epi8(units, _mm_set1_epi8(static_cast<char>(sum)));
        const __m256i lanes = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4,
                                               4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
        const __m256i all = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(sums), lanes);
        const __m256i halves = _mm256_and_si256(_mm256_srli_epi16(all, 1), _mm256_set1_epi8(0x7F));
        high = by_pairs(_mm256_min_epu8(_mm256_max_epu8(halves, _mm256_set1_epi8(kLeastHigh)),
                                        _mm256_set1_epi8(kMostHigh)));
        offset = _mm256_and_si256(_mm256_slli_epi16(all, 7), words(kOneExponent));
    }
    static B add_bytes(B a, B b) { return _mm256_add_epi8(a, b); }
    static B add_words(B a, B b) { return _mm256_add_epi16(a, b); }
    // Bytes of four features of a lane become those that place_in_line() has.
    static B by_pairs(B a) {
        return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                          0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
    }
    static void interleave(B low, B high, B& first, B& second) {
        first = _mm256_unpacklo_epi8(low, high);
        second = _mm256_unpackhi_epi8(low, high);
    }
    static void put(uint8_t* p, B a) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), a); }
    // Negate words where the low 16 bits of the mask have a one.
    static B negate(B a, uint32_t mask) {
        const __m256i place = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                                4096, 8192, 16384, static_cast<int16_t>(0x8000));
        const __m256i mine = words(static_cast<uint16_t>(mask));
        const __m256i ones = _mm256_cmpeq_epi16(_mm256_and_si256(mine, place), place);
        return _mm256_sub_epi16(_mm256_xor_si256(a, ones), ones);
    }

    static F high_words(B a) {
        return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(-0x10000)));
    }
    static F low_words(B a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
    static F floats(float x) { return _mm256_set1_ps(x); }
    // Words of 16 bits hold the sums of four codes, read as 0 to 62, and bytes of -128 to 127.
    static I dot_codes(I sum, B low, B high, const uint32_t* x) {
        const __m256i first = _mm256_maddubs_epi16(low, integers(static_cast<int>(x[0])));
        const __m256i second = _mm256_maddubs_epi16(high, integers(static_cast<int>(x[1])));
        const __m256i pairs = _mm256_add_epi16(first, second);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    template <int n> static I times(I a) { return _mm256_slli_epi32(a, n); }  // 2 to the n
    static I dot_i16(I sum, B w, const uint32_t* x, int k) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(w, integers(static_cast<int>(x[k]))));
    }
};

}  // namespace
}  // namespace avx2

const LinearKernels avx2::linear_kernels = avx2::make_kernels<avx2::Half>();

}  // namespace cassandra
