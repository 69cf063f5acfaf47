// Open blocks of sealed keys and values (sealed.h), compiled once per instruction set. Vectors are
// the compiler's: it lowers them to the registers of each instruction set.

#include <cstring>

#include "attention/sealed.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

constexpr int HALF = LINE / 2;  // values that are opened together

using Bytes = uint8_t __attribute__((vector_size(HALF)));
using PairBytes = uint8_t __attribute__((vector_size(HALF / 2)));
using Values = uint16_t __attribute__((vector_size(2 * HALF)));
using Pairs = uint32_t __attribute__((vector_size(2 * HALF)));
using Words = uint32_t __attribute__((vector_size(4 * HALF)));
using Integers = int32_t __attribute__((vector_size(4 * HALF)));
using Floats = float __attribute__((vector_size(4 * HALF)));

template <class Vector> inline void load(const void* from, Vector& to) {
    std::memcpy(&to, from, sizeof to);
}

template <class To, class From> inline void reinterpret(const From& from, To& to) {
    static_assert(sizeof from == sizeof to);
    std::memcpy(&to, &from, sizeof to);
}

// The exponent of each value of half a line: two in turn, or one for each pair.
inline void read_exponents(const uint8_t* from, bool by_parity, int half, Values& to) {
    Pairs pairs;
    if (by_parity) {
        pairs = Pairs{} + (from[0] | static_cast<uint32_t>(from[1]) << 16);
    } else {
        PairBytes bytes;
        load(from + half * HALF / 2, bytes);
        pairs = __builtin_convertvector(bytes, Pairs) * 0x10001u;
    }
    reinterpret(pairs, to);
}

// The BF16 values that the planes hold; `low` is zero where the plane is not read.
inline void join(const Values& exponents, const Values& high, const Values& low, Values& out) {
    const Values exponent = (exponents - (high >> 4)) & 0xFF;
    out = ((high & 8) << 12) | (exponent << 7) | ((high & 7) << 4) | low;
}

inline void truncate(const SealedForm& form, Values& out) {
    const uint16_t kept = static_cast<uint16_t>(~0u << form.dropped);
    const uint16_t middle = form.midpoint ? 1u << form.dropped >> 1 : 0;
    out = (out & kept) | middle;
}

// (-1)^s * w * 2^(E - 134), where w is the significand, shifted by the distance and cut off. All
// factors and products are exact floats; their upper half is the BF16 number.
inline void align(const SealedForm& form, const Values& exponents, const Values& high,
                  const Values& low, Values& out) {
    const uint32_t kept = ~0u << form.dropped;
    const uint32_t middle = form.midpoint ? 1u << form.dropped >> 1 : 0;
    const Values significands = ((high & 7) << 4) | low | 0x80;
    const Words significand = __builtin_convertvector(significands, Words);
    const Words distance = __builtin_convertvector(high, Words) >> 4;
    const Integers window = reinterpret_cast<Integers>(((significand >> distance) & kept) | middle);
    const Words scale = __builtin_convertvector(exponents, Words) << 23;
    const Floats product =
        __builtin_convertvector(window, Floats) * 0x1p-7f * reinterpret_cast<Floats>(scale);
    out = __builtin_convertvector(reinterpret_cast<Words>(product) >> 16, Values) |
          ((high & 8) << 12);
}

// Zero the values whose bit of the mask is zero.
inline void leave_out(uint32_t mask, Values& out) {
    const Values places = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                           1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    const auto kept = (places & static_cast<uint16_t>(mask)) == places;
    out &= reinterpret_cast<Values>(kept);
}

template <DraftRule rule, bool has_low, bool masked>
inline void open_line(const SealedForm& form, const SealedPart& part, const LineExponents& where,
                      size_t line, uint16_t* out) {
    Bytes lows = {};
    if (has_low) load(part.low + line * HALF, lows);
    for (int half = 0; half < 2; ++half, out += HALF) {
        Bytes bytes;
        load(part.high + (line * 2 + half) * HALF, bytes);
        const Values high = __builtin_convertvector(bytes, Values);
        const Bytes nibbles = half ? lows >> 4 : lows & 15;
        const Values low = __builtin_convertvector(nibbles, Values);
        Values exponents, values;
        read_exponents(part.exponents + where.place, where.by_parity, half, exponents);
        if (rule == DraftRule::aligned)
            align(form, exponents, high, low, values);
        else
            join(exponents, high, low, values);
        if (rule == DraftRule::truncated) truncate(form, values);
        if (masked) leave_out(part.mask[line] >> half * HALF, values);
        std::memcpy(out, &values, sizeof values);
    }
}

template <DraftRule rule, bool has_low, bool masked>
void open_blocks(const SealedForm& form, const SealedPart& part, int first, int last,
                 uint16_t* out) {
    const int down = positions_of_line(part.keys), across = dimensions_of_line(part.keys);
    size_t line = static_cast<size_t>(first) * BLOCK * part.padded / LINE;
    for (int position = first * BLOCK; position < last * BLOCK; position += down)
        for (int dimension = 0; dimension < part.padded; dimension += across, ++line) {
            const LineExponents where =
                exponents_of(form, part.keys, part.padded, position, dimension);
            open_line<rule, has_low, masked>(form, part, where, line, out + line * LINE);
        }
}

template <DraftRule rule>
void open_drafts(const SealedForm& form, const SealedPart& part, int first, int last,
                 uint16_t* out) {
    const bool has_low = rule == DraftRule::same || form.dropped < 4;
    if (part.mask)
        (has_low ? open_blocks<rule, true, true>
                 : open_blocks<rule, false, true>)(form, part, first, last, out);
    else
        (has_low ? open_blocks<rule, true, false>
                 : open_blocks<rule, false, false>)(form, part, first, last, out);
}

void open(const SealedForm& form, const SealedPart& part, bool draft, int first, int last,
          uint16_t* out) {
    if (!draft)
        open_blocks<DraftRule::same, true, false>(form, part, first, last, out);
    else if (form.rule == DraftRule::same)
        open_drafts<DraftRule::same>(form, part, first, last, out);
    else if (form.rule == DraftRule::truncated)
        open_drafts<DraftRule::truncated>(form, part, first, last, out);
    else
        open_drafts<DraftRule::aligned>(form, part, first, last, out);
    const int block = BLOCK * part.padded;
    for (const Unusual* one = part.unusual; one < part.unusual + part.unusual_count; ++one)
        if (first * block <= one->place && one->place < last * block)
            out[one->place] = draft ? one->draft : one->target;
}

}  // namespace

const SealedKernels sealed_kernels = {open};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
