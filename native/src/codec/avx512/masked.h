// Shared by the fast paths for segments with a mask: the walk over speculation data, the bytes of
// kept values, and their expansion to positions. For files compiled for AVX-512.
#pragma once

#include "codec/avx512/fused.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

// Return all ones if a < b, else 0: a data-dependent choice without a branch, which would often be
// mispredicted.
inline int64_t if_less(int64_t a, int64_t b) {
    int64_t mask = (a - b) >> 63;
    asm("" : "+r"(mask));  // keeps the compiler from making a branch
    return mask;
}

// Read windows of a coded stream, and count the ranks that are not used yet.
struct Windows {
    const int64_t size;
    const uint64_t used;
    uint8_t *codes, *const codes_end;
    int64_t queued = 0;

    // `to` may be empty if no windows are read.
    Windows(const Params& p, Buffer& to)
        : size(ROW * p.window), used(~uint64_t{0} >> (64 - 8 * size)), codes(to.data()),
          codes_end(to.bytes.empty() ? codes : codes + to.size() - 16) {}

    // Read a window from `at` on if `taken` is all ones; return its codes.
    uint64_t take(const uint8_t*& at, int64_t taken) {
        const uint64_t found = load<uint64_t>(at) & used;
        store(codes, found);
        queued += ones(found) & taken;
        at += size & taken;
        codes += size & taken;
        return found;
    }

    bool full() const { return codes > codes_end; }
};

// Walk the rows of a speculation region. `s.highs` gets 16 bytes per block, starting with its row
// of signs.
template <bool UNARY, bool MASKED> class HighWalk {
  public:
    HighWalk(const Params& p, const Region& region, Streams& s)
        : stride_(ROW * (1 + p.high_bits())), group_last_(p.group / BEAT - 1),
          superblock_(p.superblock), end_(region.bytes + region.size),
          masks_(reinterpret_cast<uint16_t*>(s.mask.data())), at_(region.bytes),
          windows_(p, s.codes), groups_(s.groups.data()), blocks_(s.highs.data()) {}

    // Return false if the region is too short or too long.
    bool go(int64_t beats) {
        int64_t now = 0;
        for (int64_t slot = -1; slot < beats; ++slot) {
            if (UNARY && slot >= 0 && !starve(now)) return false;
            const int64_t next = slot + 1 < beats ? take_mask(slot + 1) : 0;
            if (UNARY && slot + 1 < beats) windows_.take(at_, if_less(windows_.queued, BEAT));
            if (!UNARY && slot >= 0 && (slot & group_last_) == 0) take_group();
            take_block(now);
            if (at_ > end_) return false;
            now = next;
            kept_ += next;
        }
        return end_ - at_ < superblock_;
    }

    const uint8_t* codes_end() const { return windows_.codes; }
    int64_t kept() const { return kept_; }

  private:
    bool starve(int64_t wanted) {
        windows_.take(at_, if_less(windows_.queued, wanted));
        while (__builtin_expect(windows_.queued < wanted, 0)) {
            if (at_ > end_ || windows_.full()) return false;
            windows_.take(at_, -1);
        }
        windows_.queued -= wanted;
        return !windows_.full();
    }

    int64_t take_mask(int64_t beat) {
        const uint16_t mask = MASKED ? load<uint16_t>(at_) : 0xFFFF;
        masks_[beat] = mask;
        at_ += MASKED ? ROW : 0;
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
        const int64_t taken =
            MASKED ? if_less(available_, wanted) : -static_cast<int64_t>(wanted != 0);
        std::memcpy(blocks_, at_, 16);
        blocks_ += 16 & taken;
        at_ += stride_ & taken;
        available_ += (BEAT & taken) - wanted;
    }

    const int64_t stride_, group_last_, superblock_;
    const uint8_t* const end_;
    uint16_t* const masks_;
    const uint8_t* at_;
    Windows windows_;
    uint8_t *groups_, *blocks_;
    int64_t available_ = 0, kept_ = 0, groups_left_ = 0;
};

// Read rows of low.
struct LowRows {
    const int64_t size;
    uint8_t* to;
    int64_t available = 0;

    LowRows(const Params& p, Streams& s) : size(ROW * p.truncated), to(s.lows.data()) {}

    // Read a beat's rows, from `at` on.
    void take(const uint8_t*& at, int64_t kept) {
        const int64_t taken = if_less(available, kept);
        std::memcpy(to, at, 16);
        to += size & taken;
        at += size & taken;
        available += (BEAT & taken) - kept;
    }
};

// Write one more than the rank of each code in `bytes` bytes. Return the number of codes, or -1 for
// zeros at the end, or in 8 bytes, that cannot be part of a code. Other overlong runs give ranks
// that are too large.
inline int64_t ranks_of(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out) {
    const __m512i all = iota(), shift = _mm512_sub_epi8(all, _mm512_set1_epi8(1));
    const uint8_t* const start = out;
    int64_t zeros = 1;  // before these 8 bytes, plus one
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

// Look up the exponents of `wanted` codes in a book of `size` entries; return false for an invalid
// code. `ranks` has room for one rank per bit.
inline bool read_exponents(const Params& p, const uint8_t* codes, const uint8_t* codes_end,
                           const uint8_t* book, int size, int64_t wanted, uint8_t* ranks,
                           uint8_t* out) {
    const int64_t found = ranks_of(codes, codes_end - codes, p.codebook, ranks);
    for (int64_t i = wanted; i < found; ++i)
        if (ranks[i] > p.codebook) return false;  // the invalid code is not among those used
    alignas(64) uint8_t entries[64] = {};
    std::memcpy(entries + 1, book, sizeof p.book);
    const __m512i exponents = load512(entries), last = _mm512_set1_epi8(static_cast<char>(size));
    uint64_t unknown = 0;
    for (int64_t i = 0; i < wanted; i += STEP) {
        const __m512i rank = load512(ranks + i);
        unknown |= _mm512_cmpgt_epu8_mask(rank, last) & lanes64(wanted, i);
        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi8(rank, exponents));
    }
    return found >= wanted && unknown == 0;
}

// Decode the exponents of kept values from the codes of speculation data.
template <bool MASKED>
bool read_kept_exponents(const Params& p, const HighWalk<true, MASKED>& walk, Streams& s) {
    return read_exponents(p, s.codes.data(), walk.codes_end(), p.book, p.book_size, walk.kept(),
                          s.ranks.data(), s.exponents.data());
}

// Convert blocks of kept values to bytes and signs; blocks of sign_high are 16 bytes apart. `lows`
// is null for a draft.
inline void read_blocks(const Params& p, const uint8_t* lows, int64_t kept, Streams& s) {
    const Planes planes(p, lows != nullptr, ROW * p.truncated, NATURAL);
    const __m512i fill = _mm512_set1_epi8(static_cast<char>(lows ? 0 : p.fill));
    const int64_t stride = lows ? 4 * ROW * p.truncated : 0;
    if (!lows) lows = s.lows.data();
    for (int64_t at = 0; at < kept; at += STEP, lows += stride) {
        const __m512i high = load512(s.highs.data() + at);
        store(s.signs.data() + at / 8, planes.signs(high));
        _mm512_storeu_si512(s.magnitudes.data() + at,
                            _mm512_or_si512(planes.bytes(high, load512(lows)), fill));
    }
}

// Expand kept values to their positions.
template <bool MASKED> class Spread {
  public:
    Spread(const uint8_t* masks, const uint8_t* pruned) : masks_(masks), pruned_(pruned) {}

    uint64_t mask(int64_t position) const {
        return MASKED ? load<uint64_t>(masks_ + position / 8) : ~uint64_t{0};
    }

    // Return bytes of `dense` in ORDER, 0 for positions that are not kept.
    __m512i bytes(uint64_t mask, const uint8_t* dense) const {
        const __m512i some = in_register(dense);
        return _mm512_permutexvar_epi64(order_,
                                        MASKED ? _mm512_maskz_expand_epi8(mask, some) : some);
    }
    // Fill the other positions with bytes of `pruned`.
    __m512i bytes(uint64_t mask, const uint8_t* dense, const uint8_t* pruned) const {
        const __m512i kept = _mm512_maskz_expand_epi8(mask, in_register(dense));
        return _mm512_permutexvar_epi64(order_,
                                        _mm512_mask_expand_epi8(kept, ~mask, in_register(pruned)));
    }

    // Write 32 values; if `target`, put pruned values in their places.
    void put(__m512i values, uint32_t mask, bool target, uint16_t* out) {
        if (MASKED && target) {
            values = _mm512_mask_expand_epi16(values, ~mask, in_register(pruned_));
            pruned_ += 2 * (32 - ones(mask));
        }
        _mm512_storeu_si512(out, values);
    }

  private:
    const uint8_t *masks_, *pruned_;
    const __m512i order_ = _mm512_setr_epi64(ORDER[0], ORDER[1], ORDER[2], ORDER[3], ORDER[4],
                                             ORDER[5], ORDER[6], ORDER[7]);
};

// Assemble 32 words from exponents, signs and mantissas, the latter two in the low byte.
inline __m512i signed_values(__m512i words) {
    const __m512i exponents = _mm512_srli_epi16(words, 1), signs = _mm512_slli_epi16(words, 8);
    const __m512i values =
        _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x7F80), exponents, words, 0xCA);
    return _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x7FFF), values, signs, 0xCA);
}

// Return 64 bits of a bitmap from bit `from` on.
inline uint64_t bits_from(const uint8_t* bitmap, int64_t from) {
    return load<uint64_t>(bitmap + from / 8) >> from % 8 | uint64_t{bitmap[from / 8 + 8]}
                                                               << 1 << (63 - from % 8);
}

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
