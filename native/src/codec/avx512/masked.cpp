// Segments with a mask, and all of scheme unary, for beats of 16 values, where neither residues nor
// coded exponents of pruned values are read.
//
// Walks collect the rows of each stream, beat by beat and almost without branches. Then planes
// become bytes and codes become ranks, for kept values only. At the end these are spread to their
// positions, 64 at a time.
#include "codec/avx512/masked.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

// Walk the rows of a verification region: `s.lows` gets rows of low, `s.pruned` pruned values.
// Return the rows of low, or null if the region is too short or too long.
const uint8_t* walk_lows(const Params& p, const Region& region, int64_t beats, Streams& s) {
    const auto* const masks = reinterpret_cast<const uint16_t*>(s.mask.data());
    const uint8_t *at = region.bytes, *const end = at + region.size;
    uint8_t* pruned = s.pruned.data();
    const int64_t lead = 2 * p.lead;
    LowRows lows(p, s);
    for (int64_t slot = -lead; slot < beats; ++slot) {
        if (slot >= 0) {
            const int64_t missing = ROW * (BEAT - ones(masks[slot]));
            std::memcpy(pruned, at, 2 * BEAT);
            pruned += missing;
            at += missing;
        }
        if (slot + lead < beats) lows.take(at, ones(masks[slot + lead]));
        if (at > end) return nullptr;
    }
    return end - at < p.superblock ? s.lows.data() : nullptr;
}

// Return the rows of low of a verification region that has no other rows, or null as above.
const uint8_t* only_lows(const Params& p, const Region& region, int64_t beats) {
    const int64_t size = ROW * p.truncated * beats;
    return size <= region.size && region.size - size < p.superblock ? region.bytes : nullptr;
}

template <bool MASKED> void put_unary(bool target, int64_t count, Streams& s, uint16_t* out) {
    const uint8_t *bytes = s.magnitudes.data(), *exponents = s.exponents.data();
    Spread<MASKED> spread(s.mask.data(), s.pruned.data());
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const __m512i low = spread.bytes(mask, bytes), high = spread.bytes(mask, exponents);
        spread.put(signed_values(_mm512_unpacklo_epi8(low, high)), static_cast<uint32_t>(mask),
                   target, out);
        spread.put(signed_values(_mm512_unpackhi_epi8(low, high)),
                   static_cast<uint32_t>(mask >> 32), target, out + 32);
        bytes += ones(mask);
        exponents += ones(mask);
    }
}

// Return false for an invalid group exponent or a value that would be subnormal.
bool put_groups(const Params& p, bool target, int64_t count, Streams& s, uint16_t* out) {
    const GroupBytes exponents(__builtin_ctz(static_cast<unsigned>(p.group)));
    const uint8_t *bytes = s.magnitudes.data(), *const groups = s.groups.data();
    Spread<true> spread(s.mask.data(), s.pruned.data());
    uint64_t subnormal = 0;
    int64_t from = 0;
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const __m512i magnitude = spread.bytes(mask, bytes + from);
        const uint64_t minus = _pdep_u64(bits_from(s.signs.data(), from), mask);
        from += ones(mask);
        const GroupValues values(magnitude, exponents.at(groups, at));
        subnormal |= values.subnormal;
        const __m512i low = _mm512_unpacklo_epi8(values.mantissa, values.exponent),
                      high = _mm512_unpackhi_epi8(values.mantissa, values.exponent);
        spread.put(assembled(low, static_cast<uint32_t>(minus)), static_cast<uint32_t>(mask),
                   target, out);
        spread.put(assembled(high, static_cast<uint32_t>(minus >> 32)),
                   static_cast<uint32_t>(mask >> 32), target, out + 32);
    }
    return subnormal == 0 && legal_groups(p, groups, count);
}

template <bool UNARY, bool MASKED>
bool decode(const Params& p, const Region& spec, const Region* ver, int64_t count, Streams& s,
            uint16_t* out) {
    HighWalk<UNARY, MASKED> walk(p, spec, s);
    if (!walk.go(count / BEAT)) return false;
    if constexpr (UNARY)
        if (!read_kept_exponents(p, walk, s)) return false;
    const uint8_t* lows = nullptr;
    if (ver) lows = MASKED ? walk_lows(p, *ver, count / BEAT, s) : only_lows(p, *ver, count / BEAT);
    if (ver && !lows) return false;
    read_blocks(p, lows, walk.kept(), s);
    if constexpr (!UNARY) return put_groups(p, ver != nullptr, count, s, out);
    put_unary<MASKED>(ver != nullptr, count, s, out);
    return true;
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_masked_avx512(const Params& p, const Region& spec, const Region* ver, bool has_mask,
                         int64_t count, Streams& s, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    if (p.beat != BEAT || count % STEP || (!p.unary() && p.truncated == 0)) return false;
    const auto unary = has_mask ? decode<true, true> : decode<true, false>;
    return (p.unary() ? unary : decode<false, true>)(p, spec, ver, count, s, out);
}

}  // namespace cassandra::codec
