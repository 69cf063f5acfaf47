// The walks: without vectors, or with those of 64-bit Arm.
#include "codec/kernels.h"

#ifdef __ARM_FEATURE_DOTPROD
#include "codec/neon/windows.h"
#endif

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

template <int B>
inline int64_t escapes_of(const uint8_t* windows, int n, const uint8_t* residue, int64_t bit) {
    int64_t escapes = 0;
    for (int i = 0; i < n; ++i) {
        if (windows[i] == 0) escapes += ~(residue[bit / 8] >> bit % 8) & 1;
        escapes += windows[i] == ESCAPE_WINDOW;
        bit += RESIDUE_WIDTH[windows[i]];
    }
    return escapes;
}

#ifndef __ARM_FEATURE_DOTPROD

template <int B> inline Widths widths_of(const uint8_t* windows, int n) {
    int64_t bits = 0;
    bool special = false;
    for (int i = 0; i < n; ++i) {
        bits += RESIDUE_WIDTH[windows[i]];
        special |= windows[i] == 0 || windows[i] == ESCAPE_WINDOW;
    }
    return {bits, special};
}

template <int B> inline Matches matches_of(const uint8_t* ranks, int n, int rank) {
    Matches matches{0, false};
    for (int i = 0; i < n; ++i) {
        matches.equal += ranks[i] == rank;
        matches.above |= ranks[i] > rank;
    }
    return matches;
}

class LowPlanes {
  public:
    explicit LowPlanes(const Params& p) : p_(p) {}
    template <int B> void add(const uint8_t* lows, uint8_t* windows) const {
        for (int byte = 0; byte < p_.row_bytes(); ++byte) {
            uint64_t planes = 0;
            for (int plane = 0; plane < p_.truncated; ++plane)
                planes |= uint64_t{lows[plane * p_.row_bytes() + byte]} << 8 * plane;
            store(windows + 8 * byte, load<uint64_t>(windows + 8 * byte) | transposed(planes));
        }
    }

  private:
    const Params& p_;
};

#endif

}  // namespace
}  // namespace cassandra::codec::CASSANDRA_ISA

#include "codec/walk.h"

namespace cassandra::codec {

const Walks CASSANDRA_ISA::codec_walks = {CASSANDRA_ISA::walk_region<false>,
                                          CASSANDRA_ISA::walk_region<true>};

}  // namespace cassandra::codec
