// Form::planes: what a target's second plane holds (docs/software/kernels.md, "Two planes").
//
// The plane has the low byte of each value: the last bit of its exponent, and its mantissa. The
// high byte, the sign and the other bits of the exponent, is the sum of a byte of the draft's code
// and one of the group, for values that are not far below the group's largest. Patches change
// the exponents of the others.
//
// A byte of a code stands for two exponents, and the low byte tells which. So that the two are the
// same everywhere, groups with every other exponent store values less kOneExponent.
#pragma once

#include <cstdint>

namespace cassandra {

constexpr int kOneExponent = 0x80;                  // of a BF16 pattern
constexpr uint8_t kLeastHigh = 2, kMostHigh = 125;  // of a group: so codes do not change signs

// Return the sum of a group's byte of units, from which its high byte (half the sum, in bounds) and
// the offset of its values (the last bit) follow, for drafts of 5 or 4 bits.
constexpr uint8_t group_sum(int bits, uint8_t unit) {
    return static_cast<uint8_t>(unit + (bits == 5 ? 5 : 6));
}

// Return what a code adds to a group's high byte: the sign, and exponents below by two. The largest
// of five bits stands for larger values, too, and more of them are above the group's exponent.
constexpr uint8_t high_of_code(int bits, int code) {
    const int half = 1 << (bits - 1), place = code < half ? half - 1 - code : code - half;
    const int below = place < 1 ? 2 : place < 4 ? 1 : place < 15 ? 0 : -1;
    return static_cast<uint8_t>((code < half ? 0x80 : 0) - below);
}

// Return the high bytes of all codes; those of codes of four bits fill the first half.
struct HighsOfCodes {
    uint8_t all[32];
};
constexpr HighsOfCodes highs_of_codes(int bits) {
    HighsOfCodes highs{};
    for (int code = 0; code < 1 << bits; ++code) highs.all[code] = high_of_code(bits, code);
    return highs;
}

// Return the low byte that the plane has of a value.
static inline uint8_t stored_low(int bits, uint8_t unit, uint16_t value) {
    return static_cast<uint8_t>(value - (group_sum(bits, unit) & 1) * kOneExponent);
}

// Return the value that code, group and low byte predict; its low byte is right in any case.
static inline uint16_t predicted_word(int bits, int code, uint8_t unit, uint8_t low) {
    const int sum = group_sum(bits, unit), half = sum / 2;
    const int of_group = half < kLeastHigh ? kLeastHigh : half > kMostHigh ? kMostHigh : half;
    const auto high = static_cast<uint8_t>(high_of_code(bits, code) + of_group);
    return static_cast<uint16_t>((high << 8 | low) + sum % 2 * kOneExponent);
}

// Lines of the plane have the low bytes of four features. Of four outputs, first come those of two
// features, then those of the other two, so that bytes of two vectors become words of Form::bf16 by
// interleaving.
static inline int place_in_line(int lane, int feature) {
    return 16 * (lane / 4) + 8 * (feature / 2) + 2 * (lane % 4) + feature % 2;
}

// A patch changes the exponent of a word of a part: of a block of 32 features of one or two tiles,
// a part is as many words, as Form::bf16 stores them, as there are for one tile. Bits 15..7 are the
// word's place, bits 6..0 are exclusive-ored with bits 14..8 of what is predicted. Each round has a
// patch for each part; 0 changes nothing. Numbers of rounds are kept elsewhere, and places lead to
// no word outside a part, so that no change of the plane in memory leads a kernel out of it.
constexpr int kPatchedWords = 512;  // of a part

static inline uint16_t patch_of(int place, uint8_t change) {
    return static_cast<uint16_t>(place << 7 | change);
}
static inline int patched_place(uint16_t patch) { return patch >> 7; }
static inline uint8_t patched_bits(uint16_t patch) { return patch & 0x7F; }

}  // namespace cassandra
