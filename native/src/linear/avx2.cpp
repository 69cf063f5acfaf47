// Linear kernels for AVX2: the 16 lanes of a tile are two vectors.
#include <immintrin.h>

#include "linear/every_form.h"

namespace cassandra {
namespace avx2 {
namespace {

struct Pairs : WholeTiles {
    static constexpr int kRows = 1, kCodeRows = 1;

    struct F {
        __m256 low, high;
    };
    struct I {
        __m256i low, high;
    };
    using B = I;
    struct Table {
        __m256i low, high;  // octets of the words
    };

    template <class Each> static I both(const I& a, Each each) {
        return {each(a.low), each(a.high)};
    }

    static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static I integers(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
    static B words(uint16_t x) {
        const __m256i all = _mm256_set1_epi16(static_cast<int16_t>(x));
        return {all, all};
    }
    static B load(const uint8_t* p) {
        const auto* parts = reinterpret_cast<const __m256i*>(p);
        return {_mm256_load_si256(parts), _mm256_load_si256(parts + 1)};
    }
    static void store(float* y, const F& a) {
        _mm256_storeu_ps(y, a.low);
        _mm256_storeu_ps(y + 8, a.high);
    }

    static F add(const F& a, const F& b) {
        return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
    }
    static I add(const I& a, const I& b) {
        return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
    }
    static F multiply_add(const F& a, const F& b, const F& c) {
        return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
    }
    static F scaled(const I& a, float s) {
        const __m256 all = _mm256_set1_ps(s);
        return {_mm256_mul_ps(_mm256_cvtepi32_ps(a.low), all),
                _mm256_mul_ps(_mm256_cvtepi32_ps(a.high), all)};
    }
    static I multiply(const I& a, int32_t x) {
        return both(a, [x](__m256i v) { return _mm256_mullo_epi32(v, _mm256_set1_epi32(x)); });
    }
    static F units(const uint8_t* p) {
        const __m128i octets = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
        const __m256i low = _mm256_cvtepu8_epi32(octets);
        const __m256i high = _mm256_cvtepu8_epi32(_mm_srli_si128(octets, 8));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 23)),
                _mm256_castsi256_ps(_mm256_slli_epi32(high, 23))};
    }

    static B bit_and(const B& a, const B& b) {
        return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
    }
    static __m256i select(__m256i mask, __m256i a, __m256i b) {
        return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
    }
    static B select(const B& mask, const B& a, const B& b) {
        return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
    }
    template <int n> static B shift(const B& a) {
        if constexpr (n >= 0)
            return both(a, [](__m256i v) { return _mm256_slli_epi16(v, n); });
        else
            return both(a, [](__m256i v) { return _mm256_srli_epi16(v, -n); });
    }
    static B swap_bytes(const B& a) {
        return both(a, [](__m256i v) {
            return _mm256_or_si256(_mm256_slli_epi16(v, 8), _mm256_srli_epi16(v, 8));
        });
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
    static __m256i lookup(const Table& table, __m256i places) {
        const __m256i nibble = _mm256_and_si256(places, _mm256_set1_epi16(15));
        const __m256i none = _mm256_set1_epi16(static_cast<int16_t>(0x8000));
        const __m256i low = _mm256_shuffle_epi8(table.low, _mm256_or_si256(nibble, none));
        const __m256i high = _mm256_shuffle_epi8(table.high, _mm256_or_si256(nibble, none));
        return _mm256_or_si256(low, _mm256_slli_epi16(high, 8));
    }
    static B lookup(const Table& table, const B& places) {
        return {lookup(table, places.low), lookup(table, places.high)};
    }
    struct Below {
        __m256i bias, table;
    };
    static Below load_below(int32_t bias) {
        const auto* table = reinterpret_cast<const __m128i*>(kBelow);
        return {_mm256_set1_epi8(static_cast<char>(bias)),
                _mm256_broadcastsi128_si256(_mm_load_si128(table))};
    }
    // Less one: an average of two bytes, as high_bytes() takes it, adds one.
    static B exponents(const uint8_t* p) {
        const __m128i units = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
        const __m256i all =
            _mm256_broadcastsi128_si256(_mm_add_epi8(units, _mm_set1_epi8(kExponentOfUnit - 1)));
        const __m256i lanes = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4,
                                               4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
        return {_mm256_shuffle_epi8(all, lanes),
                _mm256_shuffle_epi8(all, _mm256_add_epi8(lanes, _mm256_set1_epi8(8)))};
    }
    static __m256i high_bytes(__m256i codes, const Below& below, __m256i exponents, __m256i low) {
        const __m256i distance = _mm256_sub_epi8(codes, below.bias);
        const __m256i magnitude =
            _mm256_and_si256(_mm256_srli_epi16(_mm256_abs_epi8(distance), 3), _mm256_set1_epi8(15));
        const __m256i further = _mm256_cmpgt_epi8(_mm256_setzero_si256(), low);  // -1 or 0
        const __m256i exponent = _mm256_add_epi8(
            _mm256_sub_epi8(exponents, _mm256_shuffle_epi8(below.table, magnitude)), further);
        const __m256i sign = _mm256_and_si256(distance, _mm256_set1_epi8(static_cast<char>(0x80)));
        return _mm256_or_si256(sign, _mm256_avg_epu8(exponent, _mm256_setzero_si256()));
    }
    static B high_bytes(const B& codes, const Below& below, const B& exponents, const B& low) {
        return {high_bytes(codes.low, below, exponents.low, low.low),
                high_bytes(codes.high, below, exponents.high, low.high)};
    }
    static void interleave(__m256i low, __m256i high, __m256i& first, __m256i& second) {
        const __m256 even = _mm256_castsi256_ps(_mm256_unpacklo_epi8(low, high));  // lanes 0, 1
        const __m256 odd = _mm256_castsi256_ps(_mm256_unpackhi_epi8(low, high));   // lanes 2, 3
        first = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0x88));
        second = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0xDD));
    }
    static void interleave(const B& low, const B& high, B& first, B& second) {
        interleave(low.low, high.low, first.low, second.low);
        interleave(low.high, high.high, first.high, second.high);
    }
    static void put(uint8_t* p, const B& a) {
        auto* parts = reinterpret_cast<__m256i*>(p);
        _mm256_store_si256(parts, a.low);
        _mm256_store_si256(parts + 1, a.high);
    }
    static __m256i negate(__m256i a, uint32_t mask) {
        const __m256i place = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                                4096, 8192, 16384, static_cast<int16_t>(0x8000));
        const __m256i mine = _mm256_set1_epi16(static_cast<int16_t>(mask));
        const __m256i ones = _mm256_cmpeq_epi16(_mm256_and_si256(mine, place), place);
        return _mm256_sub_epi16(_mm256_xor_si256(a, ones), ones);
    }
    static B negate(const B& a, uint32_t mask) {
        return {negate(a.low, mask), negate(a.high, mask >> 16)};
    }

    static F high_words(const B& a) {
        const __m256i mask = _mm256_set1_epi32(-0x10000);
        return {_mm256_castsi256_ps(_mm256_and_si256(a.low, mask)),
                _mm256_castsi256_ps(_mm256_and_si256(a.high, mask))};
    }
    static F low_words(const B& a) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(a.low, 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(a.high, 16))};
    }
    static F floats(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    // Avoids vpmaddubsw, whose sums of two products saturate.
    static __m256i dot_u8(__m256i sum, __m256i w, __m256i even, __m256i odd) {
        const __m256i first = _mm256_and_si256(w, _mm256_set1_epi16(0xFF));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(first, even));
        return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(w, 8), odd));
    }
    static I dot_u8(const I& sum, const B& w, const uint32_t* x, int k) {
        const __m256i bytes = _mm256_set1_epi32(static_cast<int>(x[k]));
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
        const __m256i odd = _mm256_srai_epi16(bytes, 8);
        return {dot_u8(sum.low, w.low, even, odd), dot_u8(sum.high, w.high, even, odd)};
    }
    static I dot_i16(const I& sum, const B& w, const uint32_t* x, int k) {
        const __m256i all = _mm256_set1_epi32(static_cast<int>(x[k]));
        return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(w.low, all)),
                _mm256_add_epi32(sum.high, _mm256_madd_epi16(w.high, all))};
    }
};

}  // namespace
}  // namespace avx2

const LinearKernels avx2::linear_kernels = avx2::make_kernels<avx2::Pairs>();

}  // namespace cassandra
