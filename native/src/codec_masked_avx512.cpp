// Segments with a mask, and all of scheme unary, where a beat has 16 values and neither residues nor
// coded exponents of pruned values are read.
//
// Walks bring the rows of each stream together, one beat after another and almost without branches.
// Then planes become bytes and codes ranks, of kept values alone; in the end these are spread to their
// positions, 64 at a time.
#include "codec_fused_avx512.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

inline int64_t ones(uint64_t word) { return static_cast<int64_t>(_mm_popcnt_u64(word)); }

// All bits or none: of a choice that depends on data, which a branch would guess wrong often.
inline int64_t all_if(bool chosen) {
    int64_t mask = -static_cast<int64_t>(chosen);
    asm("" : "+r"(mask));  // or it would be made a branch again
    return mask;
}

// The rows of a speculation region. `s.highs` gets 16 bytes for each block, from its row of signs on.
template <bool UNARY>
class HighWalk {
  public:
    HighWalk(const Params& p, const Region& region, bool has_mask, Streams& s)
        : has_mask_(has_mask), window_(ROW * p.window), stride_(ROW * (1 + p.high_bits())),
          group_last_(p.group / BEAT - 1), used_(~uint64_t{0} >> (64 - 8 * window_)), end_(region.bytes + region.size),
          masks_(reinterpret_cast<uint16_t*>(s.mask.data())), at_(region.bytes), codes_(s.codes.data()),
          codes_end_(UNARY ? codes_ + s.codes.size() - 16 : nullptr), groups_(s.groups.data()), blocks_(s.highs.data()) {}

    // False if the region is too short.
    bool go(int64_t beats) {
        int64_t now = 0;
        for (int64_t slot = -1; slot < beats; ++slot) {
            if (UNARY && slot >= 0 && !starve(now)) return false;
            const int64_t next = slot + 1 < beats ? take_mask(slot + 1) : 0;
            if (UNARY && slot + 1 < beats && queued_ < BEAT) take_window(true);
            if (!UNARY && slot >= 0 && (slot & group_last_) == 0) take_group();
            take_block(now);
            if (at_ > end_) return false;
            now = next;
            kept_ += next;
        }
        return true;
    }

    const uint8_t* at() const { return at_; }
    const uint8_t* codes() const { return codes_; }
    int64_t kept() const { return kept_; }

  private:
    bool starve(int64_t wanted) {
        take_window(queued_ < wanted);
        while (__builtin_expect(queued_ < wanted, 0)) {
            if (at_ > end_ || codes_ > codes_end_) return false;
            take_window(true);
        }
        queued_ -= wanted;
        return codes_ <= codes_end_;
    }

    void take_window(bool wanted) {
        const uint64_t codes = load<uint64_t>(at_) & used_;
        const int64_t taken = all_if(wanted);
        store(codes_, codes);
        queued_ += ones(codes) & taken;
        at_ += window_ & taken;
        codes_ += window_ & taken;
    }

    int64_t take_mask(int64_t beat) {
        const uint16_t mask = has_mask_ ? load<uint16_t>(at_) : 0xFFFF;
        masks_[beat] = mask;
        at_ += has_mask_ ? ROW : 0;
        return ones(mask);
    }

    void take_group() {
        if (groups_left_ == 0) {
            std::memcpy(groups_, at_, ROW);
            groups_ += ROW;
            at_ += ROW;
            groups_left_ = 2;
        }
        --groups_left_;
    }

    void take_block(int64_t wanted) {
        const int64_t taken = all_if(available_ < wanted);
        std::memcpy(blocks_, at_, 16);
        blocks_ += 16 & taken;
        at_ += stride_ & taken;
        available_ += (BEAT & taken) - wanted;
    }

    const bool has_mask_;
    const int64_t window_, stride_, group_last_;
    const uint64_t used_;
    const uint8_t* const end_;
    uint16_t* const masks_;
    const uint8_t* at_;
    uint8_t *codes_, *const codes_end_, *groups_, *blocks_;
    int64_t queued_ = 0, available_ = 0, kept_ = 0, groups_left_ = 0;
};

// The rows of a verification region: `s.lows` gets those of low, `s.pruned` pruned values. False if
// the region is too short or too long.
bool walk_lows(const Params& p, const Region& region, int64_t beats, Streams& s) {
    const auto* const masks = reinterpret_cast<const uint16_t*>(s.mask.data());
    const uint8_t *at = region.bytes, *const end = at + region.size;
    uint8_t *lows = s.lows.data(), *pruned = s.pruned.data();
    const int64_t lead = 2 * p.lead, size = ROW * p.truncated;
    int64_t available = 0;
    for (int64_t slot = -lead; slot < beats; ++slot) {
        if (slot >= 0) {
            const int64_t missing = ROW * (BEAT - ones(masks[slot]));
            std::memcpy(pruned, at, 2 * BEAT);
            pruned += missing;
            at += missing;
        }
        if (slot + lead < beats) {
            const int64_t kept = ones(masks[slot + lead]);
            const int64_t taken = all_if(available < kept);
            std::memcpy(lows, at, 16);
            lows += size & taken;
            at += size & taken;
            available += (BEAT & taken) - kept;
        }
        if (at > end) return false;
    }
    return end - at < p.superblock;
}

// One more than the rank of each code in `bytes` bytes: how many, or -1 if there are zeros at the end, or
// in 8 bytes, that can be of no code. Other runs that are too long give ranks that are.
int64_t ranks_of(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out) {
    alignas(64) uint8_t places[64], before[64];
    for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i), before[i] = static_cast<uint8_t>(i - 1);
    const __m512i all = load512(places), shift = load512(before);
    const uint8_t* const start = out;
    int64_t zeros = 1;  // before these 8 bytes, and one
    for (int64_t at = 0; at < bytes; at += 8) {
        const int64_t bits = bytes - at < 8 ? 8 * (bytes - at) : 64;
        const uint64_t word = _bzhi_u64(load<uint64_t>(codes + at), static_cast<unsigned>(bits));
        if (word == 0) return -1;
        const __m512i ends = _mm512_maskz_compress_epi8(word, all);
        _mm512_storeu_si512(out, _mm512_sub_epi8(ends, _mm512_permutexvar_epi8(shift, ends)));
        *out = static_cast<uint8_t>(zeros + static_cast<int64_t>(_tzcnt_u64(word)));
        out += ones(word);
        zeros = 1 + static_cast<int64_t>(_lzcnt_u64(word)) - (64 - bits);
    }
    return zeros > limit ? -1 : out - start;
}

// Ranks of kept values, plus one; false if a code is broken.
bool read_ranks(const Params& p, const uint8_t* codes_end, int64_t kept, Streams& s) {
    uint8_t* const ranks = s.ranks.data();
    const int64_t found = ranks_of(s.codes.data(), codes_end - s.codes.data(), p.codebook, ranks);
    for (int64_t i = kept; i < found; ++i)
        if (ranks[i] > p.codebook) return false;  // of a code that is not used
    const __m512i size = _mm512_set1_epi8(static_cast<char>(p.book_size));
    uint64_t unknown = 0;
    for (int64_t i = 0; i < kept; i += STEP)
        unknown |= _mm512_cmpgt_epu8_mask(load512(ranks + i), size) & lanes64(kept, i);
    return found >= kept && unknown == 0;
}

// Bytes of kept values from their blocks, those of sign_high 16 bytes apart; and signs.
void read_blocks(const Params& p, bool target, int64_t kept, Streams& s) {
    const Planes planes(p, target, ROW * p.truncated, NATURAL);
    const __m512i fill = _mm512_set1_epi8(static_cast<char>(target ? 0 : p.fill));
    const uint8_t* lows = s.lows.data();
    for (int64_t at = 0; at < kept; at += STEP, lows += 4 * ROW * p.truncated) {
        const __m512i high = load512(s.highs.data() + at);
        store(s.signs.data() + at / 8, planes.signs(high));
        _mm512_storeu_si512(s.magnitudes.data() + at, _mm512_or_si512(planes.bytes(high, load512(lows)), fill));
    }
}

// Values of kept ones by their positions.
class Spread {
  public:
    Spread(const uint8_t* masks, const uint8_t* pruned) : masks_(masks), pruned_(pruned) {}

    uint64_t mask(int64_t position) const { return load<uint64_t>(masks_ + position / 8); }

    // Bytes of `dense` in ORDER, 0 where nothing is kept.
    __m512i bytes(uint64_t mask, const uint8_t* dense) const {
        __m512i some = load512(dense);
        asm("" : "+v"(some));  // an expansion from memory is slow on Zen 4
        return _mm512_permutexvar_epi64(order_, _mm512_maskz_expand_epi8(mask, some));
    }

    // 32 values, with pruned ones in their places if `target`.
    void put(__m512i values, uint32_t mask, bool target, uint16_t* out) {
        if (target) {
            __m512i next = load512(pruned_);
            asm("" : "+v"(next));
            values = _mm512_mask_expand_epi16(values, ~mask, next);
            pruned_ += 2 * (32 - ones(mask));
        }
        _mm512_storeu_si512(out, values);
    }

  private:
    const uint8_t *masks_, *pruned_;
    const __m512i order_ = _mm512_setr_epi64(ORDER[0], ORDER[1], ORDER[2], ORDER[3], ORDER[4], ORDER[5], ORDER[6], ORDER[7]);
};

// 32 words of exponents, signs and mantissas, the latter two in the low byte.
inline __m512i signed_values(__m512i words) {
    const __m512i exponents = _mm512_srli_epi16(words, 1), signs = _mm512_slli_epi16(words, 8);
    const __m512i values = _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x7F80), exponents, words, 0xCA);
    return _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x7FFF), values, signs, 0xCA);
}

bool put_unary(const Params& p, bool target, int64_t count, Streams& s, uint16_t* out) {
    alignas(64) uint8_t book[64] = {};
    std::memcpy(book + 1, p.book, sizeof p.book);
    const __m512i exponents = load512(book);
    const uint8_t *bytes = s.magnitudes.data(), *ranks = s.ranks.data();
    Spread spread(s.mask.data(), s.pruned.data());
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const __m512i low = spread.bytes(mask, bytes);
        const __m512i high = _mm512_permutexvar_epi8(spread.bytes(mask, ranks), exponents);
        spread.put(signed_values(_mm512_unpacklo_epi8(low, high)), static_cast<uint32_t>(mask), target, out);
        spread.put(signed_values(_mm512_unpackhi_epi8(low, high)), static_cast<uint32_t>(mask >> 32), target, out + 32);
        bytes += ones(mask);
        ranks += ones(mask);
    }
    return true;
}

// False if a group exponent is not legal, or a value would be subnormal.
bool put_groups(const Params& p, bool target, int64_t count, Streams& s, uint16_t* out) {
    const GroupBytes exponents(__builtin_ctz(static_cast<unsigned>(p.group)));
    const __m512i one = _mm512_set1_epi8(1);
    const uint8_t *bytes = s.magnitudes.data(), *const groups = s.groups.data();
    Spread spread(s.mask.data(), s.pruned.data());
    uint64_t subnormal = 0;
    int64_t from = 0;
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const __m512i magnitude = spread.bytes(mask, bytes + from);
        const uint64_t dense = load<uint64_t>(s.signs.data() + from / 8) >> from % 8 |
                               uint64_t{s.signs.data()[from / 8 + 8]} << 1 << (63 - from % 8);
        const uint64_t minus = _pdep_u64(dense, mask);
        from += ones(mask);
        const __m512i group = exponents.at(groups, at), power = leading_power(magnitude);
        const __m512i zeros = _mm512_popcnt_epi8(_mm512_sub_epi8(power, one));
        const uint64_t some = _mm512_test_epi8_mask(magnitude, magnitude);
        subnormal |= _mm512_mask_cmple_epu8_mask(some, group, zeros);
        const __m512i mantissa = _mm512_gf2p8mul_epi8(magnitude, power);
        const __m512i exponent = _mm512_maskz_sub_epi8(some, group, zeros);
        spread.put(assembled(_mm512_unpacklo_epi8(mantissa, exponent), static_cast<uint32_t>(minus)), static_cast<uint32_t>(mask), target, out);
        spread.put(assembled(_mm512_unpackhi_epi8(mantissa, exponent), static_cast<uint32_t>(minus >> 32)), static_cast<uint32_t>(mask >> 32), target, out + 32);
    }
    bool good = subnormal == 0;
    for (int64_t i = 0; i < ceil_div(count, p.group); ++i) good &= groups[i] != 0 && (groups[i] != 255 || p.exact());
    return good;
}

template <bool UNARY>
bool decode_masked(const Params& p, const Region& spec, const Region* ver, bool has_mask, int64_t count, Streams& s, uint16_t* out) {
    HighWalk<UNARY> walk(p, spec, has_mask, s);
    if (!walk.go(count / BEAT) || spec.bytes + spec.size - walk.at() >= p.superblock) return false;
    if (UNARY && !read_ranks(p, walk.codes(), walk.kept(), s)) return false;
    if (ver && !walk_lows(p, *ver, count / BEAT, s)) return false;
    read_blocks(p, ver != nullptr, walk.kept(), s);
    return UNARY ? put_unary(p, ver != nullptr, count, s, out) : put_groups(p, ver != nullptr, count, s, out);
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_masked_avx512(const Params& p, const Region& spec, const Region* ver, bool has_mask,
                         int64_t count, Streams& s, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    if (p.beat != BEAT || count % STEP || (!p.unary() && p.truncated == 0)) return false;
    if (ver && (p.exact() || (p.coded && has_mask))) return false;
    return (p.unary() ? decode_masked<true> : decode_masked<false>)(p, spec, ver, has_mask, count, s, out);
}

}  // namespace cassandra::codec
