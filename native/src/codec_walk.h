// The demand schedule of docs/format.md, section 6, for both directions.
//
// Compiled once for each instruction set, in a namespace of its own. Before it is included, that
// namespace must have
//
//   LowPlanes: of Params; add(lows, windows) adds the low bits of one block to its windows
//   Widths{bits, special} widths_of(windows, n): of the residues of n windows, and whether one of
//   them may be an escape
#pragma once

#include "codec.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

template <class Row>
constexpr int bits_of = 8 * static_cast<int>(sizeof(Row));

static inline int ones(uint64_t word) { return __builtin_popcountll(word); }

static inline uint64_t low_bits(int n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// One segment, one region.
template <class Row, bool ENCODE>
class Walk {
  public:
    Walk(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask)
        : p_(p), region_(region), s_(s), count_(count), has_mask_(has_mask),
          beats_(ceil_div(count, B)), low_planes_(p) {
        const int bits = p.window * B;
        window_masks_[0] = low_bits(bits);
        window_masks_[1] = bits > 64 ? low_bits(bits - 64) : 0;
    }

    int speculation();
    int verification();

  private:
    static constexpr int R = sizeof(Row);
    static constexpr int B = bits_of<Row>;

    // Move `size` bytes between the region and a stream; false if the region is too short.
    bool move(uint8_t* stream, int64_t size) {
        uint8_t* const here = region_.bytes + region_.at;
        if constexpr (ENCODE) {
            if (size <= 32) {
                std::memcpy(here, stream, 32);
            } else {
                std::memcpy(here, stream, size);
            }
        } else {
            if (region_.at + size > region_.size) return false;
            if (size <= 32 && region_.at + 32 <= region_.readable) {
                std::memcpy(stream, here, 32);
            } else {
                std::memcpy(stream, here, size);
            }
        }
        region_.at += size;
        return true;
    }

    bool move_row(uint8_t* stream) {
        uint8_t* const here = region_.bytes + region_.at;
        if constexpr (ENCODE) {
            store(here, load<Row>(stream));
        } else {
            if (region_.at + R > region_.size) return false;
            store(stream, load<Row>(here));
        }
        region_.at += R;
        return true;
    }

    int64_t existing(int64_t beat) const {
        const int64_t left = count_ - beat * B;
        return left < B ? left : B;
    }

    bool is_beat(int64_t beat) const { return beat >= 0 && beat < beats_; }

    int64_t kept(int64_t beat) {
        return has_mask_ ? ones(load<Row>(s_.mask.data() + beat * R)) : existing(beat);
    }

    int take_mask(int64_t beat);
    int take_window(Buffer& codes);
    int take_group(int64_t beat);
    int take_sign_high(int64_t wanted);
    int take_low(int64_t wanted);
    int take_pruned(int64_t beat);
    int take_pruned_codes(int64_t beat);
    int take_residue(int64_t beat, int64_t wanted);
    int read_ranks(const uint8_t* window);
    int64_t count_escapes(int64_t first, int64_t last, int64_t bit);

    const Params& p_;
    Region& region_;
    Streams& s_;
    const int64_t count_;
    const bool has_mask_;
    const int64_t beats_;
    int64_t queued_ = 0, code_bytes_ = 0, ranks_ = 0, used_ = 0;
    int zeros_ = 0;
    uint64_t window_masks_[2];
    const LowPlanes low_planes_;
    int64_t level_ = 0, group_bytes_ = 0;
    int64_t available_ = 0, blocks_ = 0;
    int64_t pruned_level_ = 0, pruned_bytes_ = 0;
    int64_t residue_level_ = 0, residue_bytes_ = 0, residue_bits_ = 0, first_ = 0;
};

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_mask(int64_t beat) {
    uint8_t* const place = s_.mask.data() + beat * R;
    if (!move_row(place)) return CAUSE_SHORT;
    const int64_t lanes = existing(beat);
    if (!ENCODE && lanes < B) store(place, static_cast<Row>(load<Row>(place) & ((Row{1} << lanes) - 1)));
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_window(Buffer& codes) {
    const int size = p_.window * R;
    uint8_t* const place = codes.data() + code_bytes_;
    if (!ENCODE && code_bytes_ + size > static_cast<int64_t>(codes.size())) return CAUSE_CODE;
    s_.code_bytes = code_bytes_;
    if (!move(place, size)) return CAUSE_SHORT;
    code_bytes_ += size;
    queued_ += ones(load<uint64_t>(place) & window_masks_[0]);
    if (window_masks_[1]) queued_ += ones(load<uint64_t>(place + 8) & window_masks_[1]);
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_group(int64_t beat) {
    if (beat * B & (p_.group - 1)) return OK;
    if (level_ < 8) {
        if (!move_row(s_.groups.data() + group_bytes_)) return CAUSE_SHORT;
        group_bytes_ += R;
        level_ += B;
    }
    level_ -= 8;
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_sign_high(int64_t wanted) {
    if (available_ < wanted) {
        if (!move_row(s_.signs.data() + blocks_ * R)) return CAUSE_SHORT;
        if (!move(s_.highs.data() + blocks_ * B, p_.high_bits() * R)) return CAUSE_SHORT;
        ++blocks_;
        available_ += B;
    }
    available_ -= wanted;
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::speculation() {
    const bool unary = p_.unary();
    int64_t now = 0, total = 0;
    for (int64_t slot = -1; slot < beats_; ++slot) {
        int64_t next = 0;
        if (unary && slot >= 0) {
            while (queued_ < now)
                if (const int cause = take_window(s_.codes); cause != OK) return cause;
            queued_ -= now;
        }
        if (slot + 1 < beats_) {
            if (has_mask_)
                if (const int cause = take_mask(slot + 1); cause != OK) return cause;
            next = kept(slot + 1);
            if (unary && queued_ < B)
                if (const int cause = take_window(s_.codes); cause != OK) return cause;
        }
        if (slot >= 0) {
            if (!unary)
                if (const int cause = take_group(slot); cause != OK) return cause;
            if (const int cause = take_sign_high(now); cause != OK) return cause;
        }
        now = next;
        total += now;
    }
    s_.kept = total;
    s_.code_bytes = code_bytes_;
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_low(int64_t wanted) {
    if (available_ < wanted) {
        if (!move(s_.lows.data() + blocks_ * B, p_.truncated * R)) return CAUSE_SHORT;
        if (!ENCODE && p_.exact()) low_planes_.add(s_.lows.data() + blocks_ * B, s_.magnitudes.data() + blocks_ * B);
        ++blocks_;
        available_ += B;
    }
    available_ -= wanted;
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_residue(int64_t beat, int64_t wanted) {
    const auto [need, special] = widths_of(s_.magnitudes.data() + first_, static_cast<int>(wanted));
    if (residue_level_ < need) {
        const int64_t size = ceil_div(need - residue_level_, B) * R;
        if (!move(s_.residue.data() + residue_bytes_, size)) return CAUSE_SHORT;
        residue_bytes_ += size;
        residue_level_ += 8 * size;
    }
    residue_level_ -= need;
    if (special) {
        const int64_t escapes = count_escapes(first_, first_ + wanted, residue_bits_);
        s_.needs[beat] += 16 * escapes;
        s_.escapes += escapes;
    }
    residue_bits_ += need;
    first_ += wanted;
    return OK;
}

template <class Row, bool ENCODE>
int64_t Walk<Row, ENCODE>::count_escapes(int64_t first, int64_t last, int64_t bit) {
    int64_t escapes = 0;
    for (int64_t i = first; i < last; ++i) {
        const uint8_t window = s_.magnitudes.data()[i];
        if (window == 0) escapes += ~(s_.residue.data()[bit / 8] >> bit % 8) & 1;
        escapes += window == ESCAPE_WINDOW;
        bit += RESIDUE_WIDTH[window];
    }
    return escapes;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_pruned(int64_t beat) {
    const int64_t need = s_.needs[beat];
    s_.pruned_bits += need;
    if (pruned_level_ < need) {
        const int64_t size = ceil_div(need - pruned_level_, B) * R;
        if (!move(s_.pruned.data() + pruned_bytes_, size)) return CAUSE_SHORT;
        pruned_bytes_ += size;
        pruned_level_ += 8 * size;
    }
    pruned_level_ -= need;
    return OK;
}

// Ranks of a window of pruned_exponent, as they are needed to know the size of values.
template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::read_ranks(const uint8_t* window) {
    for (int i = 0; i < p_.window * R; ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            if (window[i] >> bit & 1) {
                s_.ranks.data()[ranks_++] = static_cast<uint8_t>(zeros_);
                zeros_ = 0;
            } else if (++zeros_ >= p_.codebook) {
                return CAUSE_CODE;
            }
        }
    }
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::take_pruned_codes(int64_t beat) {
    const auto take = [this] {
        if (const int cause = take_window(s_.pruned_codes); cause != OK) return cause;
        return ENCODE ? OK : read_ranks(s_.pruned_codes.data() + code_bytes_ - p_.window * R);
    };
    if (is_beat(beat)) {
        const int64_t missing = existing(beat) - kept(beat);
        while (queued_ < missing)
            if (const int cause = take(); cause != OK) return cause;
        queued_ -= missing;
        int64_t need = 8 * missing;
        for (int64_t i = 0; i < missing; ++i) {
            const int rank = s_.ranks.data()[used_++];
            if (rank > p_.pruned_size) return CAUSE_RANK;
            need += rank == p_.pruned_size ? 8 : 0;
        }
        s_.needs[beat] = static_cast<int32_t>(need);
    }
    if (is_beat(beat + 1) && queued_ < B) return take();
    return OK;
}

template <class Row, bool ENCODE>
int Walk<Row, ENCODE>::verification() {
    const int lead = p_.lead;
    s_.escapes = s_.pruned_bits = 0;
    for (int64_t beat = 0; beat < beats_; ++beat)
        s_.needs[beat] = static_cast<int32_t>(16 * (existing(beat) - kept(beat)));
    for (int64_t slot = -2 * lead; slot < beats_; ++slot) {
        if (slot >= 0)
            if (const int cause = take_pruned(slot); cause != OK) return cause;
        if (p_.coded && slot >= -1 - lead)
            if (const int cause = take_pruned_codes(slot + lead); cause != OK) return cause;
        if (p_.truncated && is_beat(slot + 2 * lead))
            if (const int cause = take_low(kept(slot + 2 * lead)); cause != OK) return cause;
        if (p_.exact() && is_beat(slot + lead)) {
            const int64_t beat = slot + lead;
            if (const int cause = take_residue(beat, kept(beat)); cause != OK) return cause;
        }
    }
    s_.residue_bits = residue_bits_;
    return OK;
}

template <class Row>
int speculation(const Params& p, Region& r, Streams& s, int64_t count, bool mask, bool encode) {
    return encode ? Walk<Row, true>(p, r, s, count, mask).speculation()
                  : Walk<Row, false>(p, r, s, count, mask).speculation();
}

template <class Row>
int verification(const Params& p, Region& r, Streams& s, int64_t count, bool mask, bool encode) {
    return encode ? Walk<Row, true>(p, r, s, count, mask).verification()
                  : Walk<Row, false>(p, r, s, count, mask).verification();
}

int walk_speculation(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask,
                     bool encode) {
    if (p.beat == 8) return speculation<uint8_t>(p, region, s, count, has_mask, encode);
    if (p.beat == 16) return speculation<uint16_t>(p, region, s, count, has_mask, encode);
    return speculation<uint32_t>(p, region, s, count, has_mask, encode);
}

int walk_verification(const Params& p, Region& region, Streams& s, int64_t count, bool has_mask,
                      bool encode) {
    if (p.beat == 8) return verification<uint8_t>(p, region, s, count, has_mask, encode);
    if (p.beat == 16) return verification<uint16_t>(p, region, s, count, has_mask, encode);
    return verification<uint32_t>(p, region, s, count, has_mask, encode);
}

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
