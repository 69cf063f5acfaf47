// The demand schedule of docs/format.md, section 6, for both directions.
//
// Compiled once per instruction set, in a namespace of its own. Before including it, define in that
// namespace:
//
//   LowPlanes: of Params; add<B>(lows, windows) adds the low bits of one block to its windows.
//
//   Widths widths_of<B>(windows, n): of the residues of n windows.
//
//   escapes_of<B>(windows, n, residue, bit): escapes among n windows whose residues begin at `bit`.
//
//   Matches matches_of<B>(ranks, n, rank).
#pragma once

#include "codec/codec.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

#define INLINE __attribute__((always_inline)) inline

template <class Row> constexpr int bits_of = 8 * static_cast<int>(sizeof(Row));

static inline int ones(uint64_t word) { return __builtin_popcountll(word); }

static inline uint64_t low_bits(int n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// Walk over one region of one segment.
template <class Row, bool ENCODE> class Walk {
  public:
    Walk(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask)
        : unary_(p.unary()), exact_(p.exact()), coded_(p.coded), has_mask_(has_mask),
          window_bytes_(p.window * R), lead_(p.lead), low_rows_(p.low_planes()),
          high_bits_(p.high_bits()), group_(p.group), codebook_(p.codebook),
          pruned_size_(p.pruned_size), count_(count), beats_(ceil_div(count, B)),
          code_room_(static_cast<int64_t>(p.unary() ? s.codes.size() : 0)), mask_(s.mask.data()),
          groups_(s.groups.data()), signs_(s.signs.data()), highs_(s.highs.data()),
          lows_(s.lows.data()), residue_(s.residue.data()), pruned_(s.pruned.data()),
          magnitudes_(s.magnitudes.data()), rank_bytes_(s.ranks.data()), needs_(s.needs.data()),
          region_(region.bytes), size_(region.size), readable_(region.readable), at_(region.at),
          owner_(region), s_(s), low_planes_(p) {
        const int bits = p.window * B;
        window_masks_[0] = low_bits(bits);
        window_masks_[1] = bits > 64 ? low_bits(bits - 64) : 0;
    }

    // Local copies of the members stay in registers: the compiler must assume that byte stores
    // alias references.
    INLINE int speculation();
    INLINE int verification();

    INLINE int finish(int cause) {
        owner_.at = at_;
        s_.code_bytes = code_bytes_;
        return cause;
    }

  private:
    static constexpr int R = sizeof(Row);
    static constexpr int B = bits_of<Row>;

    // Copy `size` bytes between the region and a stream; return false if the region is too short.
    INLINE bool move(uint8_t* stream, int64_t size) {
        uint8_t* const here = region_ + at_;
        if constexpr (ENCODE) {
            if (size <= 32) {
                std::memcpy(here, stream, 32);
            } else {
                std::memcpy(here, stream, size);
            }
        } else {
            if (at_ + size > size_) return false;
            if (size <= 32 && at_ + 32 <= readable_) {
                std::memcpy(stream, here, 32);
            } else {
                std::memcpy(stream, here, size);
            }
        }
        at_ += size;
        return true;
    }

    INLINE bool move_row(uint8_t* stream) {
        uint8_t* const here = region_ + at_;
        if constexpr (ENCODE) {
            store(here, load<Row>(stream));
        } else {
            if (at_ + R > size_) return false;
            store(stream, load<Row>(here));
        }
        at_ += R;
        return true;
    }

    // Copy rows until `level`, the number of unused bits, is at least `need`; then use `need` bits.
    INLINE bool take_bits(uint8_t* stream, int64_t need, int64_t& level, int64_t& bytes) {
        if (level < need) {
            const int64_t size = ceil_div(need - level, B) * R;
            if (!move(stream + bytes, size)) return false;
            bytes += size;
            level += 8 * size;
        }
        level -= need;
        return true;
    }

    INLINE int64_t existing(int64_t beat) const {
        const int64_t left = count_ - beat * B;
        return left < B ? left : B;
    }

    INLINE bool is_beat(int64_t beat) const { return beat >= 0 && beat < beats_; }

    INLINE int64_t kept(int64_t beat) {
        return has_mask_ ? ones(load<Row>(mask_ + beat * R)) : existing(beat);
    }

    INLINE int take_mask(int64_t beat);
    INLINE int take_window(uint8_t* codes);
    INLINE int take_group(int64_t beat);
    INLINE int take_sign_high(int64_t wanted);
    INLINE int take_low(int64_t wanted);
    INLINE int take_pruned(int64_t beat);
    INLINE int take_pruned_codes(int64_t beat, uint8_t* codes);
    INLINE int take_pruned_window(uint8_t* codes);
    INLINE int take_residue(int64_t beat, int64_t wanted);
    INLINE int read_ranks(const uint8_t* window);

    const bool unary_, exact_, coded_, has_mask_;
    const int window_bytes_, lead_, low_rows_, high_bits_, group_, codebook_, pruned_size_;
    const int64_t count_, beats_, code_room_;
    uint8_t *const mask_,
        *const groups_, *const signs_, *const highs_, *const lows_, *const residue_,
                                                                        *const pruned_,
                                                                            *const magnitudes_,
                                                                                *const rank_bytes_;
    int32_t* const needs_;
    uint8_t* const region_;
    const int64_t size_, readable_;
    int64_t at_;
    Region& owner_;
    Streams& s_;
    int64_t queued_ = 0, code_bytes_ = 0, ranks_ = 0, used_ = 0;
    int zeros_ = 0;
    int64_t escapes_ = 0, pruned_bits_ = 0;
    uint64_t window_masks_[2];
    const LowPlanes low_planes_;
    int64_t level_ = 0, group_bytes_ = 0;
    int64_t available_ = 0, blocks_ = 0;
    int64_t pruned_level_ = 0, pruned_bytes_ = 0;
    int64_t residue_level_ = 0, residue_bytes_ = 0, residue_bits_ = 0, first_ = 0;
};

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_mask(int64_t beat) {
    uint8_t* const place = mask_ + beat * R;
    if (!move_row(place)) return CAUSE_SHORT;
    const int64_t lanes = existing(beat);
    if (!ENCODE && lanes < B)
        store(place, static_cast<Row>(load<Row>(place) & ((Row{1} << lanes) - 1)));
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_window(uint8_t* codes) {
    const int size = window_bytes_;
    uint8_t* const place = codes + code_bytes_;
    if (!ENCODE && code_bytes_ + size > code_room_) return CAUSE_CODE;
    if (!move(place, size)) return CAUSE_SHORT;
    code_bytes_ += size;
    queued_ += ones(load<uint64_t>(place) & window_masks_[0]);
    if (window_masks_[1]) queued_ += ones(load<uint64_t>(place + 8) & window_masks_[1]);
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_group(int64_t beat) {
    if (beat * B & (group_ - 1)) return OK;
    if (level_ < 8) {
        if (!move_row(groups_ + group_bytes_)) return CAUSE_SHORT;
        group_bytes_ += R;
        level_ += B;
    }
    level_ -= 8;
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_sign_high(int64_t wanted) {
    if (available_ < wanted) {
        if (!move_row(signs_ + blocks_ * R)) return CAUSE_SHORT;
        if (!move(highs_ + blocks_ * B, high_bits_ * R)) return CAUSE_SHORT;
        ++blocks_;
        available_ += B;
    }
    available_ -= wanted;
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::speculation() {
    uint8_t* const codes = s_.codes.data();
    int64_t now = 0, total = 0;
    for (int64_t slot = -1; slot < beats_; ++slot) {
        int64_t next = 0;
        if (unary_ && slot >= 0) {
            while (queued_ < now)
                if (const int cause = take_window(codes); cause != OK) return cause;
            queued_ -= now;
        }
        if (slot + 1 < beats_) {
            if (has_mask_)
                if (const int cause = take_mask(slot + 1); cause != OK) return cause;
            next = kept(slot + 1);
            if (unary_ && queued_ < B)
                if (const int cause = take_window(codes); cause != OK) return cause;
        }
        if (slot >= 0) {
            if (!unary_)
                if (const int cause = take_group(slot); cause != OK) return cause;
            if (const int cause = take_sign_high(now); cause != OK) return cause;
        }
        now = next;
        total += now;
    }
    s_.kept = total;
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_low(int64_t wanted) {
    if (available_ < wanted) {
        if (!move(lows_ + blocks_ * B, low_rows_ * R)) return CAUSE_SHORT;
        if (!ENCODE && exact_)
            low_planes_.template add<B>(lows_ + blocks_ * B, magnitudes_ + blocks_ * B);
        ++blocks_;
        available_ += B;
    }
    available_ -= wanted;
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_residue(int64_t beat, int64_t wanted) {
    const auto [need, special] = widths_of<B>(magnitudes_ + first_, static_cast<int>(wanted));
    if (!take_bits(residue_, need, residue_level_, residue_bytes_)) return CAUSE_SHORT;
    if (special) {
        const int64_t escapes =
            escapes_of<B>(magnitudes_ + first_, static_cast<int>(wanted), residue_, residue_bits_);
        needs_[beat] += 16 * escapes;
        escapes_ += escapes;
    }
    residue_bits_ += need;
    first_ += wanted;
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_pruned(int64_t beat) {
    const int64_t need = needs_[beat];
    pruned_bits_ += need;
    return take_bits(pruned_, need, pruned_level_, pruned_bytes_) ? OK : CAUSE_SHORT;
}

// Decode the ranks of a window of pruned_exponent as they are needed, to find the size of values.
template <class Row, bool ENCODE> int Walk<Row, ENCODE>::read_ranks(const uint8_t* window) {
    for (int i = 0; i < window_bytes_; ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            if (window[i] >> bit & 1) {
                rank_bytes_[ranks_++] = static_cast<uint8_t>(zeros_);
                zeros_ = 0;
            } else if (++zeros_ >= codebook_) {
                return CAUSE_CODE;
            }
        }
    }
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::take_pruned_window(uint8_t* codes) {
    if (const int cause = take_window(codes); cause != OK) return cause;
    return ENCODE ? OK : read_ranks(codes + code_bytes_ - window_bytes_);
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_pruned_codes(int64_t beat, uint8_t* codes) {
    if (is_beat(beat)) {
        const int64_t missing = existing(beat) - kept(beat);
        while (queued_ < missing)
            if (const int cause = take_pruned_window(codes); cause != OK) return cause;
        queued_ -= missing;
        const auto [escapes, unknown] =
            matches_of<B>(rank_bytes_ + used_, static_cast<int>(missing), pruned_size_);
        if (unknown) return CAUSE_RANK;
        used_ += missing;
        needs_[beat] = static_cast<int32_t>(8 * (missing + escapes));
    }
    if (is_beat(beat + 1) && queued_ < B) return take_pruned_window(codes);
    return OK;
}

template <class Row, bool ENCODE> int Walk<Row, ENCODE>::verification() {
    const int lead = lead_;
    uint8_t* const codes = s_.pruned_codes.data();
    for (int64_t beat = 0; beat < beats_; ++beat)
        needs_[beat] = static_cast<int32_t>(16 * (existing(beat) - kept(beat)));
    for (int64_t slot = -2 * lead; slot < beats_; ++slot) {
        if (slot >= 0)
            if (const int cause = take_pruned(slot); cause != OK) return cause;
        if (coded_ && slot >= -1 - lead)
            if (const int cause = take_pruned_codes(slot + lead, codes); cause != OK) return cause;
        if (low_rows_ && is_beat(slot + 2 * lead))
            if (const int cause = take_low(kept(slot + 2 * lead)); cause != OK) return cause;
        if (exact_ && is_beat(slot + lead)) {
            const int64_t beat = slot + lead;
            if (const int cause = take_residue(beat, kept(beat)); cause != OK) return cause;
        }
    }
    s_.residue_bits = residue_bits_;
    s_.escapes = escapes_;
    s_.pruned_bits = pruned_bits_;
    return OK;
}

template <bool VERIFICATION, class Row, bool ENCODE>
int walk_rows(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask) {
    Walk<Row, ENCODE> walk(p, region, s, count, has_mask);
    return walk.finish(VERIFICATION ? walk.verification() : walk.speculation());
}

template <bool VERIFICATION>
int walk_region(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask,
                bool encode) {
    const auto rows_of = [&](auto row) {
        using Row = decltype(row);
        const auto walk =
            encode ? walk_rows<VERIFICATION, Row, true> : walk_rows<VERIFICATION, Row, false>;
        return walk(p, region, s, count, has_mask);
    };
    if (p.beat == 8) return rows_of(uint8_t{});
    return p.beat == 16 ? rows_of(uint16_t{}) : rows_of(uint32_t{});
}

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA

#undef INLINE
