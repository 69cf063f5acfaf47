// Vectors of 512 bits for the kernels of AVX-512 and AVX-512 BF16: the 16 lanes of a tile are one
// vector.
#pragma once

#include <immintrin.h>

#include "linear/kernels.h"
#include "linear/planes.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

struct Wide : WholeTiles {
    static constexpr int kRows = 8, kCodeRows = 8;

    using F = __m512;
    using I = __m512i;
    using B = __m512i;
    using Table = __m512i;

    static F zero() { return _mm512_setzero_ps(); }
    static I integers(int32_t x) { return _mm512_set1_epi32(x); }
    static B words(uint16_t x) { return _mm512_set1_epi16(static_cast<int16_t>(x)); }
    static B load(const uint8_t* p) { return _mm512_load_si512(p); }
    static void store(float* y, F a) { _mm512_storeu_ps(y, a); }

    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static I add(I a, I b) { return _mm512_add_epi32(a, b); }
    static F multiply_add(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F scaled(I a, float s) {
        return _mm512_mul_ps(_mm512_cvtepi32_ps(a), _mm512_set1_ps(s));
    }
    static I multiply(I a, int32_t x) { return _mm512_mullo_epi32(a, integers(x)); }
    static F units(const uint8_t* p) {
        const __m128i octets = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(octets), 23));
    }

    static B bit_and(B a, B b) { return _mm512_and_si512(a, b); }
    static B select(B mask, B a, B b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xE2); }
    template <int n> static B shift(B a) {
        if constexpr (n >= 0)
            return _mm512_slli_epi16(a, n);
        else
            return _mm512_srli_epi16(a, -n);
    }
    static B swap_bytes(B a) { return _mm512_shldi_epi16(a, a, 8); }
    // Both halves of a table are equal, so bit 4 of a place is ignored.
    static Table load_table(const uint16_t* table) { return _mm512_loadu_si512(table); }
    static B lookup(Table table, B places) { return _mm512_permutexvar_epi16(places, table); }
    using Highs = __m512i;  // of 32 codes, twice
    static Highs load_highs(const uint8_t (&all)[32]) {
        return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(all)));
    }
    // Upper bits of an index are of the next code: of 5 bits, both halves of the table are equal.
    template <int shift> static B look_up_codes(const Highs& highs, B codes) {
        B places = _mm512_srli_epi16(codes, shift);
        if constexpr (shift == 4) places = _mm512_and_si512(places, _mm512_set1_epi8(15));
        return _mm512_permutexvar_epi8(places, highs);
    }
    static void group_sums(const uint8_t* p, int sum, B& high, B& offset) {
        const __m128i units = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
        const __m512i lanes =
            _mm512_set_epi32(0x0F0F0F0F, 0x0E0E0E0E, 0x0D0D0D0D, 0x0C0C0C0C, 0x0B0B0B0B, 0x0A0A0A0A,
                             0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                             0x03030303, 0x02020202, 0x01010101, 0);
        const __m128i sums = _mm_add_epi8(units, _mm_set1_epi8(static_cast<char>(sum)));
        const B all = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(sums), lanes);
        const B halves = _mm512_and_si512(_mm512_srli_epi16(all, 1), _mm512_set1_epi8(0x7F));
        high = by_pairs(_mm512_min_epu8(_mm512_max_epu8(halves, _mm512_set1_epi8(kLeastHigh)),
                                        _mm512_set1_epi8(kMostHigh)));
        offset = _mm512_and_si512(_mm512_slli_epi16(all, 7), words(kOneExponent));
    }
    static B add_bytes(B a, B b) { return _mm512_add_epi8(a, b); }
    static B add_words(B a, B b) { return _mm512_add_epi16(a, b); }
    static B by_pairs(B a) {
        return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                          0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
    }
    static void interleave(B low, B high, B& first, B& second) {
        first = _mm512_unpacklo_epi8(low, high);
        second = _mm512_unpackhi_epi8(low, high);
    }
    static void put(uint8_t* p, B a) { _mm512_store_si512(p, a); }
    static B negate(B a, uint32_t mask) {
        return _mm512_mask_sub_epi16(a, mask, _mm512_setzero_si512(), a);
    }

    static F high_words(B a) {
        return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32(-0x10000)));
    }
    static F low_words(B a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
    static F floats(float x) { return _mm512_set1_ps(x); }
    static I dot_u8(I sum, B w, const uint32_t* x, int k) {
        return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(static_cast<int>(x[k])));
    }
    static I dot_i16(I sum, B w, const uint32_t* x, int k) {
        return _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(static_cast<int>(x[k])));
    }
};

}  // namespace
}  // namespace CASSANDRA_ISA
}  // namespace cassandra
