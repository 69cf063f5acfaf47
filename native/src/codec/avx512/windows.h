// Escapes among windows of scheme exact. For files compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include "codec/kernels.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

// Load a beat of windows into the narrowest register: a load that is wider than the store before it
// stalls until the store completes.
template <int B> inline __m256i load_beat(const uint8_t* from) {
    if constexpr (B == 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (B == 16)
        return _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

// Width masks of windows below 128, as bytes.
struct WidthMasks {
    alignas(64) uint8_t of[128];
    constexpr WidthMasks() : of() {
        for (int window = 0; window < 128; ++window) {
            int width = 0;
            while (window << width < 128 && window) ++width;
            of[window] = static_cast<uint8_t>((1 << (window ? width : 1)) - 1);
        }
    }
};
constexpr WidthMasks WIDTH_MASKS;

// Special windows are rare: only these search for their place among the bits.
template <int B>
inline int64_t escapes_of(const uint8_t* windows, int n, const uint8_t* residue, int64_t bit) {
    const __mmask32 lanes = _bzhi_u32(~0u, n);
    const __m256i window = load_beat<B>(windows);
    uint32_t empty = _mm256_mask_testn_epi8_mask(lanes, window, window);
    const __mmask32 full = _mm256_mask_cmpeq_epi8_mask(lanes, window, _mm256_set1_epi8(-1));
    int64_t escapes = _mm_popcnt_u32(full);
    if (!empty) return escapes;
    const __m512i low = _mm512_load_si512(WIDTH_MASKS.of),
                  high = _mm512_load_si512(WIDTH_MASKS.of + 64);
    const __mmask64 known = ~_mm512_movepi8_mask(_mm512_castsi256_si512(window));
    alignas(64) uint64_t masks[8];
    _mm512_store_si512(
        masks, _mm512_maskz_permutex2var_epi8(known, low, _mm512_castsi256_si512(window), high));
    for (; empty; empty &= empty - 1) {
        const int lane = static_cast<int>(_tzcnt_u32(empty));
        int64_t at = bit + _mm_popcnt_u64(_bzhi_u64(masks[lane / 8], 8 * (lane % 8)));
        for (int word = 0; word < lane / 8; ++word) at += _mm_popcnt_u64(masks[word]);
        escapes += ~(residue[at / 8] >> at % 8) & 1;
    }
    return escapes;
}

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
