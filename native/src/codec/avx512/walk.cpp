// The walks for AVX-512: with popcnt, and with all windows of a beat of scheme exact at once.
#include "codec/avx512/windows.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

alignas(16) constexpr uint8_t ZEROS_OF_HIGH[16] = {8, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(16) constexpr uint8_t ZEROS_OF_LOW[16] = {8, 7, 6, 6, 5, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4};

template <int B> inline void store_beat(uint8_t* to, __m256i beat) {
    if constexpr (B == 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), beat);
    if constexpr (B == 16)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(beat));
    if constexpr (B == 8)
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(beat));
}

template <int B> inline Widths widths_of(const uint8_t* windows, int n) {
    const __m256i high_table = _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(ZEROS_OF_HIGH)));
    const __m256i low_table =
        _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(ZEROS_OF_LOW)));
    const __mmask32 lanes = _bzhi_u32(~0u, n);
    const __m256i window = load_beat<B>(windows), nibble = _mm256_set1_epi8(15);
    const __m256i low = _mm256_shuffle_epi8(low_table, _mm256_and_si256(window, nibble));
    const __m256i high =
        _mm256_shuffle_epi8(high_table, _mm256_and_si256(_mm256_srli_epi16(window, 4), nibble));
    __m256i width = _mm256_maskz_min_epu8(lanes, low, high);
    const __mmask32 empty = _mm256_mask_testn_epi8_mask(lanes, window, window);
    const __mmask32 full = _mm256_mask_cmpeq_epi8_mask(lanes, window, _mm256_set1_epi8(-1));
    width = _mm256_mask_mov_epi8(width, empty, _mm256_set1_epi8(1));
    const __m256i sums = _mm256_sad_epu8(width, _mm256_setzero_si256());
    __m128i half = _mm256_castsi256_si128(sums);
    if constexpr (B == 32) half = _mm_add_epi64(half, _mm256_extracti128_si256(sums, 1));
    return {_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1), (empty | full) != 0};
}

template <int B> inline Matches matches_of(const uint8_t* ranks, int n, int rank) {
    const __mmask32 lanes = _bzhi_u32(~0u, n);
    const __m256i found = load_beat<B>(ranks), wanted = _mm256_set1_epi8(static_cast<char>(rank));
    const __mmask32 equal = _mm256_mask_cmpeq_epi8_mask(lanes, found, wanted);
    return {_mm_popcnt_u32(equal), _mm256_mask_cmpgt_epu8_mask(lanes, found, wanted) != 0};
}

class LowPlanes {
  public:
    explicit LowPlanes(const Params& p) {
        alignas(32) uint8_t index[32] = {};
        used_ = 0;
        for (int word = 0; word < p.row_bytes(); ++word)
            for (int plane = 0; plane < p.truncated; ++plane) {
                index[8 * word + 7 - plane] = static_cast<uint8_t>(plane * p.row_bytes() + word);
                used_ |= 1u << (8 * word + 7 - plane);
            }
        places_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
    }

    template <int B> void add(const uint8_t* lows, uint8_t* windows) const {
        store_beat<B>(windows, with<B>(lows, windows));
    }

    template <int B> __m256i with(const uint8_t* lows, const uint8_t* windows) const {
        const __m256i planes = _mm256_maskz_permutexvar_epi8(used_, places_, load_beat<B>(lows));
        const __m256i identity = _mm256_set1_epi64x(0x8040201008040201ll);
        const __m256i low = _mm256_gf2p8affine_epi64_epi8(identity, planes, 0);
        return _mm256_or_si256(load_beat<B>(windows), low);
    }

  private:
    __mmask32 used_;
    __m256i places_;
};

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA

#include "codec/walk.h"

namespace cassandra::codec {

const Walks avx512::codec_walks = {avx512::walk_region<false>, avx512::walk_region<true>};

}  // namespace cassandra::codec
