// Shared by the fast paths of scheme exact targets: convert windows and residue bits to values, 64
// at a time. For files compiled for AVX-512.
#pragma once

#include "codec/avx512/fused.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

// Residues of 64 windows in ORDER, one byte each. The starts of the residues of four beats (bits,
// modulo 2^16) are words of a vector, `stride` words apart, from word `offset` on. `bits` points to
// the byte that contains `first`, the first of these bits.
class ResidueBytes {
  public:
    ResidueBytes(int stride, int offset) : starts_(starts(stride, offset)) {}

    __m512i at(const uint8_t* bits, __m512i places, int64_t first, __m512i widths) const {
        // start of each block of 8; a beat's second block follows its first
        const __m512i sums = _mm512_sad_epu8(widths, _mm512_setzero_si512());
        const __m512i beats = _mm512_maskz_permutexvar_epi16(0x11111111, starts_, places);
        const __m512i start = _mm512_maskz_sub_epi16(
            0x11111111, beats, _mm512_set1_epi16(static_cast<short>(first & ~7)));
        const __m512i blocks =
            _mm512_mask_add_epi64(start, 0xCC, start, _mm512_permutex_epi64(sums, 0x44));
        const __m512i byte = _mm512_shuffle_epi8(_mm512_srli_epi64(blocks, 3), first_byte_);
        const __m512i fields =
            _mm512_permutexvar_epi8(_mm512_add_epi8(byte, seven_), load512(bits));
        // start of each value's bits within the 8 bytes of its block
        __m512i place = _mm512_ternarylogic_epi64(blocks, _mm512_set1_epi64(7),
                                                  _mm512_slli_epi64(widths, 8), 0xEA);
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 8));
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 16));
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 32));
        return _mm512_multishift_epi64_epi8(place, fields);
    }

  private:
    static __m512i starts(int stride, int offset) {
        alignas(64) uint16_t index[32] = {};
        for (int word = 0; word < 8; ++word)
            index[4 * word] = static_cast<uint16_t>(stride * (ORDER[word] / 2) + offset);
        return load512(index);
    }
    const __m512i starts_;
    const __m512i first_byte_ = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0808080808080808, 0));
    const __m512i seven_ = _mm512_set1_epi64(0x0706050403020100);
};

class ExactValues {
  public:
    // Summary of the windows seen: zeros, invalid windows.
    struct Found {
        uint64_t zeros = 0, broken = 0;
    };

    // `stride` and `offset` give the starts of residues as for ResidueBytes.
    ExactValues(int log2_group, Streams& s, int stride, int offset)
        : exponents_(log2_group), residues_(stride, offset), groups_(s.groups.data()),
          residue_(s.residue.data()) {}

    // Write 64 values from `position` on, given `window` and `kept` in ORDER; windows of pruned
    // values are 0. Residues begin at `bits`, those of each beat at `places`; `stored` is advanced.
    void put(int64_t position, __m512i window, uint64_t kept, uint64_t minus, __m512i places,
             int64_t bits, const uint8_t*& stored, uint16_t* out, Found& found) const {
        const __m512i one = _mm512_set1_epi8(1), power = leading_power(window);
        const uint64_t some = _mm512_test_epi8_mask(window, window);
        const __m512i mask =
            _mm512_mask_sub_epi8(_mm512_maskz_mov_epi8(kept, one), some, power, one);
        const __m512i width = _mm512_popcnt_epi8(mask);
        const __m512i field =
            residues_.at(residue_ + (static_cast<uint64_t>(bits) >> 3), places, bits, width);
        const uint64_t flags = _mm512_test_epi8_mask(field, one) & kept;
        const uint64_t full =
            _mm512_cmpeq_epi8_mask(window, _mm512_set1_epi8(static_cast<char>(ESCAPE_WINDOW)));
        const __m512i group = exponents_.at(groups_, position);
        found.broken |= _mm512_mask_cmple_epu8_mask(some, group, width);
        found.zeros |= flags & ~some;
        const __m512i shifted = _mm512_gf2p8mul_epi8(window, power);
        const __m512i mantissa =
            _mm512_maskz_mov_epi8(some, _mm512_ternarylogic_epi64(shifted, field, mask, 0xF8));
        const __m512i exponent = _mm512_maskz_sub_epi8(some, group, width);
        const uint64_t whole = in_order(full | ~(some | flags));
        put_half(_mm512_unpacklo_epi8(mantissa, exponent), static_cast<uint32_t>(minus),
                 static_cast<uint32_t>(whole), stored, out);
        put_half(_mm512_unpackhi_epi8(mantissa, exponent), static_cast<uint32_t>(minus >> 32),
                 static_cast<uint32_t>(whole >> 32), stored, out + 32);
    }

  private:
    static void put_half(__m512i words, uint32_t minus, uint32_t whole, const uint8_t*& stored,
                         uint16_t* out) {
        _mm512_storeu_si512(
            out, _mm512_mask_expand_epi16(assembled(words, minus), whole, in_register(stored)));
        stored += 2 * static_cast<int64_t>(_mm_popcnt_u32(whole));
    }

    const GroupBytes exponents_;
    const ResidueBytes residues_;
    const uint8_t *const groups_, *const residue_;
};

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
