// Decoder of the segments of a tensor: regions to values.
#pragma once

#include "codec/kernels.h"

namespace cassandra::codec {

// Input of a decoder: one segment.
struct Segment {
    Region speculation, verification;
    int64_t count;
    bool has_mask;
};

// Decode segments of one format, one after another.
class Decoder {
  public:
    explicit Decoder(const Params& p) : p_(p), s_(p), k_(kernels()), walks_(walks()) {}

    // Switch to another tensor; return false if it needs another decoder.
    bool take(const Params& p) {
        const bool fits = p.scheme == p_.scheme && p.segment == p_.segment && p.beat == p_.beat &&
                          p.window == p_.window && p.codebook == p_.codebook && p.coded == p_.coded;
        if (fits) p_ = p;
        return fits;
    }

    // Decode a segment into out [count]. Return OK, or the Cause of the error.
    int decode(Segment segment, bool target, uint16_t* out);

  private:
    static Region roomy(const Region& region, Buffer& room);
    bool fused(const Segment& segment, bool target, uint16_t* out);
    int read_speculation(Segment& segment);
    int check_length(const Region& region) const {
        // a region is read in whole rows
        return region.size - region.at >= p_.superblock ? CAUSE_LONG : OK;
    }
    bool codes_are_good();
    int read_codes();
    int64_t blocks() const { return ceil_div(s_.kept, p_.beat); }
    const uint8_t* mask_or_null(const Segment& s) { return s.has_mask ? s_.mask.data() : nullptr; }
    const uint8_t* placed(const Segment& segment, Buffer& dense, Buffer& room);
    const uint8_t* placed_signs(const Segment& segment);
    void restore(const Segment& segment, uint16_t* out);
    int target(Segment& segment, uint16_t* out);
    int exact_target(const Segment& segment, uint16_t* out);
    void put_pruned(const Segment& segment, uint16_t* out);
    void put_coded(const Segment& segment, uint16_t* out);

    Params p_;
    Streams s_;
    Buffer speculation_room_, verification_room_;
    const Kernels& k_;
    const Walks& walks_;
};

}  // namespace cassandra::codec
