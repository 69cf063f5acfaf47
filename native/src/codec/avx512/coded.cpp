// Targets of scheme unary with coded exponents of pruned values, for beats of 16 values.
//
// The bytes of a beat's pruned values depend on the number of escapes among their exponents.
// Escapes are runs of zeros of one length, and rare: the walk tests all windows for runs at least
// that long at once, and examines only windows that contain one.
#include <algorithm>

#include "codec/avx512/masked.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

// Test whether a word has a run of `length` ones (1 if it is 0), at most 31.
class Runs {
  public:
    explicit Runs(int length) {
        for (int have = 1, i = 0; i < 5; ++i) {
            shifts_[i] = std::clamp(length - have, 0, have);
            have += shifts_[i];
        }
    }
    bool in(uint64_t word) const {
        for (const int shift : shifts_) word &= word >> shift;
        return word != 0;
    }

  private:
    int shifts_[5];
};

// Codes of pruned values. `s.stored` gets one bit per rank: 1 for an escape.
class PrunedCodes {
  public:
    PrunedCodes(const Params& p, int64_t count, Streams& s)
        : windows_(p, s.pruned_codes), escape_(p.pruned_size), room_(count), runs_(p.pruned_size),
          escapes_(s.stored.data()) {
        std::memset(escapes_, 0, count / 8 + 8);
    }

    // Consume windows starting at `at` until `wanted` ranks are available, and use these ranks.
    // Return false for data that the slow path must handle.
    bool starve(const uint8_t*& at, const uint8_t* end, int64_t wanted) {
        while (__builtin_expect(windows_.queued < wanted, 0)) {
            if (at > end || windows_.full()) return false;
            take(at, -1);
        }
        windows_.queued -= wanted;
        return good_ && !windows_.full();
    }

    void prefetch(const uint8_t*& at) { take(at, if_less(windows_.queued, BEAT)); }

    const uint8_t* end() const { return windows_.codes; }

  private:
    void take(const uint8_t*& at, int64_t taken) {
        const uint64_t word = windows_.take(at, taken), beyond = ~windows_.used;
        const auto first = static_cast<int64_t>(_tzcnt_u64(word | beyond));
        const bool special = runs_.in(~(word | beyond)) || zeros_ + first >= escape_ || word == 0;
        if (__builtin_expect(special && taken, 0)) return look(word);
        ranks_ += ones(word) & taken;
        const auto last = static_cast<int64_t>(_lzcnt_u64(word)) - (64 - 8 * windows_.size);
        zeros_ += (last - zeros_) & taken;
    }

    __attribute__((noinline)) void look(uint64_t word) {
        for (int64_t bit = 0; bit < 8 * windows_.size; ++bit, word >>= 1) {
            if ((word & 1) == 0) {
                ++zeros_;
                continue;
            }
            good_ &= zeros_ <= escape_ && ranks_ < room_;
            if (good_ && zeros_ == escape_)
                escapes_[ranks_ / 8] |= static_cast<uint8_t>(1 << ranks_ % 8);
            zeros_ = 0;
            ++ranks_;
        }
    }

    Windows windows_;
    const int64_t escape_, room_;
    const Runs runs_;
    uint8_t* const escapes_;
    int64_t zeros_ = 0, ranks_ = 0;
    bool good_ = true;
};

// Pruned values: one byte each to `s.pruned`, and the exponents of escapes to `s.residue`.
class PrunedBytes {
  public:
    explicit PrunedBytes(Streams& s)
        : escapes_(s.stored.data()), bytes_(s.pruned.data()), exponents_(s.residue.data()) {}

    void take(const uint8_t*& at, int64_t missing) {
        const uint64_t escapes =
            _bzhi_u64(bits_from(escapes_, taken_), static_cast<unsigned>(missing));
        const int64_t size = missing + ones(escapes), rows = (size - over_ + 1) & ~int64_t{1};
        std::memcpy(bytes_ + taken_ + over_, at, 2 * BEAT);
        at += rows;
        over_ += rows - size;
        if (__builtin_expect(escapes != 0, 0)) split(missing, escapes);
        taken_ += missing;
    }

  private:
    void split(int64_t missing, uint64_t escapes) {
        uint8_t* to = bytes_ + taken_;
        const uint8_t* from = to;
        for (int64_t i = 0; i < missing; ++i, escapes >>= 1) {
            *to++ = *from++;
            if (escapes & 1) *exponents_++ = *from++;
        }
        *to = *from;
    }

    const uint8_t* const escapes_;
    uint8_t* const bytes_;
    uint8_t* exponents_;
    int64_t taken_ = 0, over_ = 0;  // values read; bytes read that belong to the next beat (0 or 1)
};

// Walk the rows of the verification region. Return the end of the codes, or null for data that the
// slow path must handle.
const uint8_t* walk_pruned(const Params& p, const Region& region, int64_t count, Streams& s) {
    const auto* const masks = reinterpret_cast<const uint16_t*>(s.mask.data());
    const uint8_t *at = region.bytes, *const end = at + region.size;
    const int64_t beats = count / BEAT, lead = p.lead;
    LowRows lows(p, s);
    PrunedCodes codes(p, count, s);
    PrunedBytes bytes(s);
    const auto missing = [&](int64_t beat) { return BEAT - ones(masks[beat]); };
    const auto exists = [&](int64_t beat) { return beat >= 0 && beat < beats; };
    for (int64_t slot = -2 * lead; slot < beats; ++slot) {
        if (slot >= 0) bytes.take(at, missing(slot));
        if (exists(slot + lead) && !codes.starve(at, end, missing(slot + lead))) return nullptr;
        if (exists(slot + lead + 1)) codes.prefetch(at);
        if (slot + 2 * lead < beats) lows.take(at, BEAT - missing(slot + 2 * lead));
        if (at > end) return nullptr;
    }
    return end - at < p.superblock ? codes.end() : nullptr;
}

// Decode the exponents of `n` pruned values to `s.residues`.
bool read_pruned_exponents(const Params& p, const uint8_t* codes_end, int64_t n, Streams& s) {
    uint8_t* const out = s.residues.data();
    const int size = p.pruned_size + 1;  // including the escape
    if (!read_exponents(p, s.pruned_codes.data(), codes_end, p.pruned_book, size, n, s.ranks.data(),
                        out))
        return false;
    const uint8_t* exponent = s.residue.data();
    for (int64_t at = 0; at < n; at += STEP)
        for (uint64_t left = load<uint64_t>(s.stored.data() + at / 8) & lanes64(n, at); left;
             left &= left - 1)
            out[at + static_cast<int64_t>(_tzcnt_u64(left))] = *exponent++;
    return true;
}

void put_coded(int64_t count, Streams& s, uint16_t* out) {
    const uint8_t *bytes = s.magnitudes.data(), *exponents = s.exponents.data();
    const uint8_t *pruned_bytes = s.pruned.data(), *pruned_exponents = s.residues.data();
    const Spread<true> spread(s.mask.data(), nullptr);
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const int64_t kept = ones(mask), pruned = STEP - kept;
        const __m512i low = spread.bytes(mask, bytes, pruned_bytes);
        const __m512i high = spread.bytes(mask, exponents, pruned_exponents);
        _mm512_storeu_si512(out, signed_values(_mm512_unpacklo_epi8(low, high)));
        _mm512_storeu_si512(out + 32, signed_values(_mm512_unpackhi_epi8(low, high)));
        bytes += kept, exponents += kept, pruned_bytes += pruned, pruned_exponents += pruned;
    }
}

template <bool MASKED>
bool decode_coded(const Params& p, const Region& spec, const Region& ver, int64_t count, Streams& s,
                  uint16_t* out) {
    HighWalk<true, MASKED> walk(p, spec, s);
    if (!walk.go(count / BEAT)) return false;
    if (!read_kept_exponents(p, walk, s)) return false;
    const uint8_t* const codes_end = walk_pruned(p, ver, count, s);
    if (!codes_end || !read_pruned_exponents(p, codes_end, count - walk.kept(), s)) return false;
    read_blocks(p, s.lows.data(), walk.kept(), s);
    put_coded(count, s, out);
    return true;
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_coded_avx512(const Params& p, const Region& spec, const Region& ver, bool has_mask,
                        int64_t count, Streams& s, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    if (p.beat != BEAT || count % STEP) return false;
    return (has_mask ? decode_coded<true> : decode_coded<false>)(p, spec, ver, count, s, out);
}

}  // namespace cassandra::codec
