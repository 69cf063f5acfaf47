// Vectors of 512 bits for the kernels of AVX-512 and AVX-512 BF16: the 16 lanes of a tile are one
// vector.
#pragma once

#include <immintrin.h>

#include "linear/kernels.h"

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
