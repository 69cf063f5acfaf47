// Drafts of mx and exact, and targets of mx, without pruned values, for beats of 16 values: the
// places of all rows are known in advance.
#include "codec/avx512/fused.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

// Write the values of magnitudes in ORDER, one word each, whose group exponent is 8 or less:
// subnormals.
inline void put_small(__m512i magnitudes, __m512i groups, uint64_t minus, uint16_t* out) {
    alignas(64) uint8_t magnitude[64], group[64];
    _mm512_store_si512(magnitude, magnitudes);
    _mm512_store_si512(group, groups);
    for (int i = 0; i < STEP; ++i) {
        const int at = 8 * ORDER[i / 8] + i % 8;
        out[at] =
            static_cast<uint16_t>(VALUE[group[i] * 256 + magnitude[i]] | (minus >> at & 1) << 15);
    }
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_avx512(const Params& p, const Region& spec, const Region* ver, int64_t count,
                  uint8_t* groups, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    const int64_t low_size = ROW * p.truncated * (count / BEAT);
    if (ver && (low_size > ver->size || ver->size - low_size >= p.superblock)) return false;
    const Speculation from(p, spec, count, groups);
    if (!from.good) return false;
    const Planes planes(p, ver != nullptr, ROW * p.truncated);
    const GroupBytes exponents(from.log2_group);
    const __m512i fill = _mm512_set1_epi8(static_cast<char>(ver ? 0 : p.fill));
    const uint8_t* lows = ver ? ver->bytes : spec.bytes;
    const int low_stride = ver ? 4 * ROW * p.truncated : 0;
    for (int64_t at = 0; at < count; at += STEP, out += STEP, lows += low_stride) {
        const __m512i high = four(from.block(at), from.stride);
        const __m512i magnitude = _mm512_or_si512(planes.bytes(high, load512(lows)), fill);
        const __m512i group = exponents.at(groups, at);
        const uint64_t minus = planes.signs(high);
        const GroupValues values(magnitude, group);
        if (__builtin_expect(values.subnormal != 0, 0)) {
            put_small(magnitude, group, minus, out);
            continue;
        }
        const __m512i low = _mm512_unpacklo_epi8(values.mantissa, values.exponent),
                      high_words = _mm512_unpackhi_epi8(values.mantissa, values.exponent);
        _mm512_storeu_si512(out, assembled(low, static_cast<uint32_t>(minus)));
        _mm512_storeu_si512(out + 32, assembled(high_words, static_cast<uint32_t>(minus >> 32)));
    }
    return true;
}

}  // namespace cassandra::codec
