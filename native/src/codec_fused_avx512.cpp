// Schemes mx and exact where nothing is pruned: rows lie in places that are known beforehand, so
// values come straight from the regions, 64 at a time.
#include <immintrin.h>

#include "codec_kernels.h"

namespace cassandra::codec {
namespace {

constexpr int BEAT = 16, ROW = 2, STEP = 64;  // values of a beat, bytes of a row, values at a time

// Places of the planes of four blocks, 16 bytes each, for a transposition of 8 by 8 bits: high
// planes in the first register, low planes in the second.
struct Planes {
    __m512i places;
    uint64_t used = 0;

    Planes(int truncated, bool low) {
        alignas(64) uint8_t index[64] = {};
        for (int word = 0; word < 8; ++word)
            for (int place = low ? 0 : truncated; place < 8; ++place) {
                const int row = place >= truncated ? 7 - place : place;
                const int byte = word / 2 * 16 + word % 2 + row * ROW;
                index[8 * word + 7 - place] = static_cast<uint8_t>(place < truncated ? 64 + byte : byte);
                used |= uint64_t{1} << (8 * word + 7 - place);
            }
        places = _mm512_load_si512(index);
    }

    __m512i bytes(__m512i high, __m512i low) const {
        const __m512i rows = _mm512_maskz_permutex2var_epi8(used, high, places, low);
        return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(0x8040201008040201ll), rows, 0);
    }
};

inline __m128i load128(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

inline __m512i four(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
    __m512i all = _mm512_castsi128_si512(load128(a));
    all = _mm512_inserti32x4(all, load128(b), 1);
    all = _mm512_inserti32x4(all, load128(c), 2);
    return _mm512_inserti32x4(all, load128(d), 3);
}

// Rows of group exponents up to and with the beat that begins at `position`.
inline int64_t exponent_rows(int64_t position, int log2_group) {
    return ((position >> log2_group) + 2) >> 1;
}

struct Zeros {
    __m512i low, high;
    Zeros() : low(_mm512_loadu_si512(LEADING_ZEROS)), high(_mm512_loadu_si512(LEADING_ZEROS + 64)) {}
    __m512i of(__m512i bytes) const {
        return _mm512_maskz_permutex2var_epi8(~_mm512_movepi8_mask(bytes), low, bytes, high);
    }
};

// 32 values of one group.
inline __m512i values(__m256i magnitudes, __m256i zeros, int group, __mmask32 minus) {
    const __m512i magnitude = _mm512_cvtepu8_epi16(magnitudes), z = _mm512_cvtepu8_epi16(zeros);
    const __m512i exponent = _mm512_set1_epi16(static_cast<short>(group));
    const __m512i mantissa = _mm512_and_si512(_mm512_sllv_epi16(magnitude, z), _mm512_set1_epi16(0x7F));
    __m512i value = _mm512_or_si512(_mm512_slli_epi16(_mm512_sub_epi16(exponent, z), 7), mantissa);
    if (group < 8) {  // subnormals
        const __mmask32 small = _mm512_cmple_epu16_mask(exponent, z);
        value = _mm512_mask_sllv_epi16(value, small, magnitude, _mm512_set1_epi16(static_cast<short>(group - 1)));
    }
    value = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(magnitude, magnitude), value);
    const __m512i negative = _mm512_or_si512(value, _mm512_set1_epi16(static_cast<short>(0x8000)));
    return _mm512_mask_mov_epi16(value, minus, negative);
}

// Where the rows of a speculation region are; `good` if it has the right size, the 32 bytes that a
// load may overrun, and legal group exponents.
struct Speculation {
    const uint8_t* rows;
    int log2_group, stride;
    bool good = false;

    Speculation(const Params& p, const Region& region, int64_t count, uint8_t* groups)
        : rows(region.bytes), log2_group(__builtin_ctz(p.group)), stride(ROW * (1 + p.high_bits())) {
        if (p.beat != BEAT || p.group < 32 || count % STEP) return;
        const int64_t size = stride * (count / BEAT) + ROW * exponent_rows(count - 1, log2_group);
        const bool fits = size <= region.size && region.size - size < p.superblock;
        if (!fits || size + 32 > region.readable) return;
        for (int64_t at = 0; at < count; at += 2 * p.group)
            std::memcpy(groups + (at >> log2_group), block(at) - ROW, ROW);
        good = true;
        for (int64_t i = 0; i < ceil_div(count, p.group); ++i)
            good &= groups[i] != 0 && (groups[i] != 255 || p.exact());
    }

    // The sign row of the beat at `position`; its other rows follow.
    const uint8_t* block(int64_t position) const {
        return rows + stride * (position / BEAT) + ROW * exponent_rows(position, log2_group);
    }

    // High planes of 64 values, and their signs.
    __m512i planes(int64_t position, uint64_t& signs) const {
        const uint8_t* beat[4];
        signs = 0;
        for (int b = 0; b < 4; ++b) {
            beat[b] = block(position + b * BEAT);
            signs |= uint64_t{load<uint16_t>(beat[b])} << (16 * b);
        }
        return four(beat[0] + ROW, beat[1] + ROW, beat[2] + ROW, beat[3] + ROW);
    }
};

}  // namespace

bool fused_exact_avx512(const Params& p, const Region& spec, Region& ver, int64_t count,
                        const Walks& walks, Streams& s) {
    const Speculation from(p, spec, count, s.groups.data());
    if (!from.good) return false;
    const Planes high_places(p.truncated, false);
    for (int64_t at = 0; at < count; at += STEP) {
        uint64_t signs;
        const __m512i planes = from.planes(at, signs);
        _mm512_storeu_si512(s.magnitudes.data() + at, high_places.bytes(planes, planes));
        store(s.signs.data() + at / 8, signs);
    }
    s.kept = count;
    return walks.exact(p, ver, s, count) == OK && ver.size - ver.at < p.superblock;
}

bool fused_avx512(const Params& p, const Region& spec, const Region* ver, int64_t count,
                  uint8_t* groups, uint16_t* out) {
    const int64_t low_size = ROW * p.truncated * (count / BEAT);
    if (ver && (low_size > ver->size || ver->size - low_size >= p.superblock)) return false;
    if (ver && low_size + 32 > ver->readable) return false;
    const Speculation from(p, spec, count, groups);
    if (!from.good) return false;
    const Planes places(p.truncated, ver != nullptr);
    const Zeros leading;
    const __m512i fill = _mm512_set1_epi8(static_cast<char>(ver ? 0 : p.fill));
    const uint8_t* lows = ver ? ver->bytes : spec.bytes;
    const int low_stride = ver ? ROW * p.truncated : 0, log2_group = from.log2_group;
    for (int64_t at = 0; at < count; at += STEP, out += STEP, lows += 4 * low_stride) {
        uint64_t signs;
        const __m512i high = from.planes(at, signs);
        const __m512i low = four(lows, lows + low_stride, lows + 2 * low_stride, lows + 3 * low_stride);
        const __m512i magnitudes = _mm512_or_si512(places.bytes(high, low), fill);
        const __m512i zeros = leading.of(magnitudes);
        const __m512i first = values(_mm512_castsi512_si256(magnitudes), _mm512_castsi512_si256(zeros),
                                     groups[at >> log2_group], static_cast<uint32_t>(signs));
        const __m512i second = values(_mm512_extracti64x4_epi64(magnitudes, 1), _mm512_extracti64x4_epi64(zeros, 1),
                                      groups[(at + 32) >> log2_group], static_cast<uint32_t>(signs >> 32));
        _mm512_storeu_si512(out, first);
        _mm512_storeu_si512(out + 32, second);
    }
    return true;
}

}  // namespace cassandra::codec
