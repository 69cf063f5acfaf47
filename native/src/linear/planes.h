// Form::planes: what a target's second plane holds (docs/software/kernels.md, "Two planes").
//
// The plane has the low byte of each value: the last bit of its exponent, and its mantissa. The
// high byte, the sign and the other bits of the exponent, follows from the code of the draft, the
// exponent of the group and the low byte, for values that are not far below the group's largest.
// Patches hold the high bytes of the others.
#pragma once

#include <cstdint>

namespace cassandra {

constexpr int kExponentOfUnit = 6;  // from the byte of a group's units to its exponent

// Distances of exponents below the group's, by magnitude of a code in 4 bits (a code of 4 bits has
// odd ones). The last bit of an exponent may say that it is one further below.
alignas(16) constexpr uint8_t kBelow[16] = {4, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 255};

// Return the place in kBelow of a code, as a draft's kernel reads it (times 8, or 16): with a bias
// that makes it signed.
static inline int magnitude_of(int code, int bias) {
    const int distance = code < bias ? bias - code : code - bias;
    return distance >> 3;
}

// Fill a table of kBelow by the upper five bits of a code as a draft's kernel reads it.
static inline void below_by_code(int bias, uint8_t (&table)[32]) {
    for (int i = 0; i < 32; ++i) {
        const int magnitude = magnitude_of(8 * i, bias);
        table[i] = kBelow[magnitude < 15 ? magnitude : 15];
    }
}

// Return the high byte of a value. Exponents wrap around at 256, as in the kernels' bytes.
static inline uint8_t predicted_byte(int code, int bias, uint8_t unit, uint8_t low) {
    const int below = kBelow[magnitude_of(code, bias)];
    const auto exponent = static_cast<uint8_t>(unit + kExponentOfUnit - below - (low >> 7));
    return static_cast<uint8_t>((code < bias ? 0x80 : 0) | exponent >> 1);
}

// A patch is two bytes: words from the last patch of its block to this one, and the high byte. A
// block is 32 features of one or two tiles, as Form::bf16 stores them. Where the next is too far
// away, a patch repeats what is there. Numbers of patches are kept elsewhere, so that no change of
// the plane in memory leads a kernel out of it.
constexpr int kFarthest = 255;
constexpr int kPatchRun = 4;  // a block's number of patches is a multiple: the last is repeated

}  // namespace cassandra
