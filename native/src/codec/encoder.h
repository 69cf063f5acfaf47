// Encoder of the segments of a tensor: values to regions.
#pragma once

#include <algorithm>

#include "codec/kernels.h"

namespace cassandra::codec {

// Rank of each exponent, `missing` for exponents that are not in the codebook.
struct Ranks {
    uint8_t of[256];
    Ranks(const uint8_t* book, int size, uint8_t missing) {
        std::fill(of, of + 256, missing);
        for (int i = 0; i < size; ++i) of[book[i]] = static_cast<uint8_t>(i);
    }
};

// Indices of an encoder's totals: golden's stream names in the order of section 3.
enum { BITS_MASK, BITS_EXPONENT, BITS_SIGN_HIGH, BITS_LOW, BITS_RESIDUE, BITS_CODES, BITS_PRUNED };
constexpr int STREAMS = BITS_PRUNED + 1;

// Encode segments of one format, one after another.
class Encoder {
  public:
    Encoder(const Params& p, bool always_mask)
        : p_(p), always_mask_(always_mask), s_(p), k_(kernels()), walks_(walks()),
          ranks_(p.book, p.book_size, 255),
          pruned_ranks_(p.pruned_book, p.pruned_size, static_cast<uint8_t>(p.pruned_size)) {
        for (int e = 0; e < 256; ++e) wanted_[e] = !p.unary() || ranks_.of[e] != 255;
        positional_.resize(p.segment + 2 * p.beat);
        fields_.resize(2 * (p.segment + 2 * p.beat));
    }

    // Encode the speculation region of a segment into `region`, which must have room, and set its
    // size.
    void speculation(const uint16_t* values, const uint8_t* kept, const uint8_t* groups,
                     int64_t count, Region& region);
    // Encode the verification region of the same segment.
    void verification(const uint16_t* values, int64_t count, Region& region);
    bool has_mask() const { return has_mask_; }
    const int64_t* bits() const { return bits_; }  // of all segments, by stream

  private:
    void choose_kept(const uint16_t* values, const uint8_t* kept, int64_t count);
    void choose_groups(const uint16_t* values, const uint8_t* groups, int64_t count);
    void make_blocks(const uint16_t* values, int64_t count);
    void make_stored(const uint16_t* values, int64_t count);
    void make_coded(const uint16_t* values, int64_t count);
    int64_t make_codes(const uint16_t* values, int64_t count);
    void complete(Region& region) const;
    const uint8_t* mask() { return has_mask_ ? s_.mask.data() : nullptr; }

    const Params p_;
    const bool always_mask_;
    Streams s_;
    const Kernels& k_;
    const Walks& walks_;
    const Ranks ranks_, pruned_ranks_;
    uint8_t wanted_[256];
    Buffer positional_, fields_;
    bool has_mask_ = false;
    int64_t bits_[STREAMS] = {};
};

// Maximum bytes of the regions of a segment, including the overrun of walks.
struct Room {
    int64_t speculation, verification;
    Room(const Params& p, int64_t count);
};

// Add the frequency of each exponent to counts [2, 256]: first of values that are not in `kept`
// (null: all are kept), then of those that are.
void count_exponents(const uint16_t* values, const uint8_t* kept, int64_t count, int64_t* counts);

}  // namespace cassandra::codec
