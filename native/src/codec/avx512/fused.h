// Shared by the fast paths: rows at places known in advance, processed 64 values at a time. For
// files compiled for AVX-512.
#pragma once

#include "codec/bits.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

constexpr int BEAT = 16, ROW = 2, STEP = 64;  // values per beat, bytes per row, values at a time

inline int64_t ones(uint64_t word) { return static_cast<int64_t>(_mm_popcnt_u64(word)); }

inline __m512i load512(const void* from) { return _mm512_loadu_si512(from); }

// Load into a register before an expansion, because expanding from memory is slow on Zen 4.
inline __m512i in_register(const void* from) {
    __m512i loaded = load512(from);
    asm("" : "+v"(loaded));
    return loaded;
}

// Return the bytes 0 to 63.
inline __m512i iota() {
    alignas(64) uint8_t lanes[64];
    for (int i = 0; i < 64; ++i) lanes[i] = static_cast<uint8_t>(i);
    return load512(lanes);
}

// Order of the blocks of 8 values in a vector of bytes: unpacking bytes to words then gives values
// in order.
constexpr int ORDER[8] = {0, 4, 1, 5, 2, 6, 3, 7}, NATURAL[8] = {0, 1, 2, 3, 4, 5, 6, 7};

// Permute the bits of bytes in ORDER to the order of values.
inline uint64_t in_order(uint64_t mask) {
    return _pext_u64(mask, 0x00FF00FF00FF00FF) | _pext_u64(mask, 0xFF00FF00FF00FF00) << 32;
}

inline uint64_t out_of_order(uint64_t mask) {  // the inverse
    return _pdep_u64(mask, 0x00FF00FF00FF00FF) | _pdep_u64(mask >> 32, 0xFF00FF00FF00FF00);
}

// Transpose bits: byte j of each result has bit j of all bytes of `rows`, its last byte lowest.
inline __m512i transposed(__m512i rows) {
    return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(0x8040201008040201ll), rows, 0);
}

// Convert the planes of four beats to 64 bytes in `order`. `high` has each beat's planes of
// sign_high in 16 bytes, starting with the sign; `low` has the planes of low in `low_stride` bytes.
struct Planes {
    __m512i places, sign_places;
    uint64_t used = 0;

    // Select the bits from `truncated` (0 if `low`) up to the sign; in unary the sign is bit 7.
    Planes(const Params& p, bool low, int low_stride, const int (&order)[8] = ORDER) {
        alignas(64) uint8_t index[64] = {}, sign_index[64] = {};
        const int top = p.magnitude_bits(), first = low ? 0 : p.truncated;
        for (int word = 0; word < 8; ++word) {
            const int block = order[word], beat = block / 2, byte = block % 2;
            for (int place = first; place < 8; ++place) {
                const bool is_low = place < p.truncated;
                const int at = is_low ? 64 + low_stride * beat + ROW * place + byte
                                      : 16 * beat + ROW * (top - place) + byte;
                index[8 * word + 7 - place] = static_cast<uint8_t>(at);
                used |= uint64_t{1} << (8 * word + 7 - place);
            }
        }
        for (int byte = 0; byte < 8; ++byte)
            sign_index[byte] = static_cast<uint8_t>(16 * (byte / 2) + byte % 2);
        places = load512(index);
        sign_places = load512(sign_index);
    }

    __m512i bytes(__m512i high, __m512i low) const {
        return transposed(_mm512_maskz_permutex2var_epi8(used, high, places, low));
    }

    uint64_t signs(__m512i high) const {
        const __m512i rows = _mm512_permutexvar_epi8(sign_places, high);
        return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(rows)));
    }
};

inline __m128i load128(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

inline __m512i four(const uint8_t* first, int64_t stride) {
    __m512i all = _mm512_castsi128_si512(load128(first));
    all = _mm512_inserti32x4(all, load128(first + stride), 1);
    all = _mm512_inserti32x4(all, load128(first + 2 * stride), 2);
    return _mm512_inserti32x4(all, load128(first + 3 * stride), 3);
}

// Group exponents of 64 positions, in `order`.
class GroupBytes {
  public:
    explicit GroupBytes(int log2_group, const int (&order)[8] = ORDER) : shift_(log2_group) {
        alignas(64) uint8_t index[64];
        for (int lane = 0; lane < 64; ++lane)
            index[lane] = static_cast<uint8_t>((8 * order[lane / 8] + lane % 8) >> shift_);
        index_ = load512(index);
    }
    __m512i at(const uint8_t* groups, int64_t position) const {
        const uint64_t some = load<uint64_t>(groups + (position >> shift_));
        return _mm512_permutexvar_epi8(index_, _mm512_set1_epi64(static_cast<long long>(some)));
    }

  private:
    int shift_;
    __m512i index_;
};

// Return the number of rows of group exponents through the beat that begins at `position`.
inline int64_t exponent_rows(int64_t position, int log2_group) {
    return ((position >> log2_group) + 2) >> 1;
}

// Places of the rows in a speculation region of mx or exact without a mask. `good` is true if the
// region has the right size and valid group exponents. One row of each plane and of the signs must
// fit in 16 bytes.
struct Speculation {
    const uint8_t* rows;
    int log2_group, stride;
    bool good = false;

    Speculation(const Params& p, const Region& region, int64_t count, uint8_t* groups)
        : rows(region.bytes), log2_group(__builtin_ctz(p.group)),
          stride(ROW * (1 + p.high_bits())) {
        if (p.beat != BEAT || p.group < 32 || count % STEP || p.truncated == 0) return;
        const int64_t size = stride * (count / BEAT) + ROW * exponent_rows(count - 1, log2_group);
        const bool fits = size <= region.size && region.size - size < p.superblock;
        if (!fits) return;
        for (int64_t at = 0; at < count; at += 2 * p.group)
            std::memcpy(groups + (at >> log2_group), block(at) - ROW, ROW);
        good = legal_groups(p, groups, count);
    }

    // Return the sign row of the beat at `position`; its other rows follow. Four beats from a
    // multiple of STEP on are `stride` bytes apart.
    const uint8_t* block(int64_t position) const {
        return rows + stride * (position / BEAT) + ROW * exponent_rows(position, log2_group);
    }
};

// Return 2^z for bytes with z leading zeros; 0 for 0.
inline __m512i leading_power(__m512i bytes) {
    const __m512i reversed = _mm512_gf2p8affine_epi64_epi8(
        bytes, _mm512_set1_epi64(static_cast<long long>(0x8040201008040201ull)), 0);
    return _mm512_and_si512(reversed, _mm512_sub_epi8(_mm512_setzero_si512(), reversed));
}

// Convert 64 magnitudes in units of their groups; `subnormal` marks those that need more work.
struct GroupValues {
    __m512i mantissa, exponent;
    uint64_t subnormal;

    GroupValues(__m512i magnitude, __m512i group) {
        const __m512i power = leading_power(magnitude);
        const __m512i zeros = _mm512_popcnt_epi8(_mm512_sub_epi8(power, _mm512_set1_epi8(1)));
        const uint64_t some = _mm512_test_epi8_mask(magnitude, magnitude);
        subnormal = _mm512_mask_cmple_epu8_mask(some, group, zeros);
        mantissa = _mm512_gf2p8mul_epi8(magnitude, power);
        exponent = _mm512_maskz_sub_epi8(some, group, zeros);
    }
};

// Assemble 32 words from exponents and mantissas (bit 7 of these is ignored) and their signs.
inline __m512i assembled(__m512i words, uint32_t minus) {
    const __m512i exponents = _mm512_srli_epi16(words, 1);
    const __m512i values = _mm512_ternarylogic_epi64(_mm512_set1_epi16(static_cast<short>(0xFF80)),
                                                     exponents, words, 0xCA);
    return _mm512_mask_add_epi16(values, minus, values,
                                 _mm512_set1_epi16(static_cast<short>(0x8000)));
}

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
