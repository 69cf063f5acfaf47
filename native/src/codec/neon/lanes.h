// Bits and bytes in vectors of 64-bit Arm. For files compiled for NEON.
#pragma once

#include <arm_neon.h>

#include "codec/kernels.h"

namespace cassandra::codec {
namespace {

constexpr uint8x16_t PLACES = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
constexpr uint8x16_t IOTA = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Return ones in the lanes below n; n may be negative.
inline uint8x16_t lanes_below(int64_t n) {
    return vcltq_s8(vreinterpretq_s8_u8(IOTA), vdupq_n_s8(n < 16 ? static_cast<int8_t>(n) : 16));
}

// Expand 16 bits to bytes of ones.
inline uint8x16_t expanded(const uint8_t* bitmap) {
    const uint8x16_t both = vreinterpretq_u8_u16(vdupq_n_u16(load<uint16_t>(bitmap)));
    return vtstq_u8(vqtbl1q_u8(both, vshrq_n_u8(IOTA, 3)), PLACES);
}

// Collect a bit of each byte of ones.
inline uint16_t collected(uint8x16_t ones) {
    uint8x16_t bits = vandq_u8(ones, PLACES);
    for (int step = 0; step < 3; ++step) bits = vpaddq_u8(bits, bits);
    return vgetq_lane_u16(vreinterpretq_u16_u8(bits), 0);
}

inline bool any(uint8x16_t ones) { return vmaxvq_u8(ones) != 0; }

template <int SHIFT> inline uint64x2_t swapped(uint64x2_t x, uint64_t mask) {
    const uint64x2_t t = vandq_u64(veorq_u64(x, vshrq_n_u64(x, SHIFT)), vdupq_n_u64(mask));
    return veorq_u64(x, veorq_u64(t, vshlq_n_u64(t, SHIFT)));
}

// Swap bit (i, j) with bit (j, i) in each half.
inline uint8x16_t transposed(uint8x16_t bytes) {
    uint64x2_t x = vreinterpretq_u64_u8(bytes);
    x = swapped<7>(x, 0x00AA00AA00AA00AA);
    x = swapped<14>(x, 0x0000CCCC0000CCCC);
    return vreinterpretq_u8_u64(swapped<28>(x, 0x00000000F0F0F0F0));
}

// Return the widths of the residues of windows.
inline uint8x16_t residue_widths(uint8x16_t windows) {
    return vbslq_u8(vceqzq_u8(windows), vdupq_n_u8(1), vclzq_u8(windows));
}

// Bytes of 32 values: places in 32 bytes of rows, for each byte of untransposed planes.
struct Planes {
    alignas(16) uint8_t index[32];
    Planes() { std::memset(index, 0xFF, sizeof index); }  // of no byte

    // Take bit `place` of 8 values from each byte of a row of blocks.
    void take(const Params& p, int place, int row) {
        const int size = p.row_bytes();
        for (int word = 0; word < 4; ++word)
            index[8 * word + place] =
                static_cast<uint8_t>(word / size * p.beat + word % size + row * size);
    }

    // Return the bytes of half of the values; other bytes are those of `others`.
    uint8x16_t at(const uint8_t* rows, int half, uint8x16_t others) const {
        return vqtbx2q_u8(others, vld1q_u8_x2(rows), vld1q_u8(index + 16 * half));
    }
};

}  // namespace
}  // namespace cassandra::codec
