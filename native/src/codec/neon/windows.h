// Windows of scheme exact and their low bits in vectors of 64-bit Arm, for the walks.
#pragma once

#include "codec/neon/lanes.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

template <int B> inline Widths widths_of(const uint8_t* windows, int n) {
    int64_t bits = 0;
    uint8x16_t special = vdupq_n_u8(0);
    for (int i = 0; i < B; i += 16) {
        const uint8x16_t window = vld1q_u8(windows + i), inside = lanes_below(n - i);
        const uint8x16_t ends = vceqq_u8(window, vdupq_n_u8(ESCAPE_WINDOW));
        special = vorrq_u8(special, vandq_u8(inside, vorrq_u8(ends, vceqzq_u8(window))));
        bits += vaddlvq_u8(vandq_u8(inside, residue_widths(window)));
    }
    return {bits, any(special)};
}

template <int B> inline Matches matches_of(const uint8_t* ranks, int n, int rank) {
    const uint8x16_t wanted = vdupq_n_u8(static_cast<uint8_t>(rank));
    uint8x16_t above = vdupq_n_u8(0);
    int64_t equal = 0;
    for (int i = 0; i < B; i += 16) {
        const uint8x16_t found = vld1q_u8(ranks + i), inside = lanes_below(n - i);
        above = vorrq_u8(above, vandq_u8(inside, vcgtq_u8(found, wanted)));
        equal += vaddvq_u8(vshrq_n_u8(vandq_u8(inside, vceqq_u8(found, wanted)), 7));
    }
    return {equal, any(above)};
}

class LowPlanes {
  public:
    explicit LowPlanes(const Params& p) {
        for (int plane = 0; plane < p.truncated; ++plane) planes_.take(p, plane, plane);
    }

    template <int B> void add(const uint8_t* lows, uint8_t* windows) const {
        for (int half = 0; half < (B + 15) / 16; ++half) {
            uint8_t* const place = windows + 16 * half;
            uint8x16_t low = transposed(planes_.at(lows, half, vdupq_n_u8(0)));
            if (B == 8) low = vandq_u8(low, lanes_below(8));
            vst1q_u8(place, vorrq_u8(vld1q_u8(place), low));
        }
    }

  private:
    Planes planes_;
};

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA
