// Open lines of sealed keys and values (sealed.h); compiled once for each instruction set. The
// loops over the values of a line are written for auto-vectorization.

#include <cstring>

#include "attention/sealed.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

constexpr int HALF = LINE / 2;

// Fields of a line, read from the planes.
struct Line {
    uint16_t exponents[LINE];
    uint16_t high[LINE];
    uint16_t low[LINE];
};

inline void read_exponents(const uint8_t* from, bool by_parity, uint16_t* to) {
    if (by_parity) {
        for (int i = 0; i < HALF; ++i) to[2 * i] = from[0], to[2 * i + 1] = from[1];
    } else {
        for (int i = 0; i < HALF; ++i) to[2 * i] = to[2 * i + 1] = from[i];
    }
}

inline void read_low(const uint8_t* from, uint16_t* to) {
    for (int i = 0; i < HALF; ++i) to[i] = from[i] & 15;
    for (int i = 0; i < HALF; ++i) to[HALF + i] = from[i] >> 4;
}

inline void join(const Line& line, uint16_t* out) {
    for (int i = 0; i < LINE; ++i) {
        const unsigned high = line.high[i];
        const unsigned exponent = line.exponents[i] - (high >> 4);
        out[i] = static_cast<uint16_t>((high & 8) << 12 | (exponent & 0xFF) << 7 | (high & 7) << 4 |
                                       line.low[i]);
    }
}

inline void truncate(const SealedForm& form, uint16_t* out) {
    const uint16_t kept = static_cast<uint16_t>(~0u << form.dropped);
    const uint16_t middle = form.midpoint ? 1u << form.dropped >> 1 : 0;
    for (int i = 0; i < LINE; ++i) out[i] = static_cast<uint16_t>((out[i] & kept) | middle);
}

// Compute (-1)^s * w * 2^(E - 134), where w is the significand, shifted by the distance and
// truncated. All factors and products are exact floats whose upper half is the BF16 number.
inline void align(const SealedForm& form, const Line& line, uint16_t* out) {
    const uint32_t kept = ~0u << form.dropped;
    const uint32_t middle = form.midpoint ? 1u << form.dropped >> 1 : 0;
    for (int i = 0; i < LINE; ++i) {
        const uint32_t high = line.high[i];
        const uint32_t significand = 0x80u | (high & 7) << 4 | line.low[i];
        const uint32_t window = (significand >> (high >> 4) & kept) | middle;
        const uint32_t bits = static_cast<uint32_t>(line.exponents[i]) << 23;
        float scale;
        std::memcpy(&scale, &bits, sizeof scale);
        const float value = static_cast<float>(static_cast<int32_t>(window)) * 0x1p-7f * scale;
        uint32_t found;
        std::memcpy(&found, &value, sizeof found);
        out[i] = static_cast<uint16_t>(found >> 16 | (high & 8) << 12);
    }
}

inline void leave_out(uint32_t mask, uint16_t* out) {
    for (int i = 0; i < LINE; ++i) out[i] = static_cast<uint16_t>(out[i] & -(mask >> i & 1));
}

template <DraftRule rule, bool has_low>
void open_lines(const SealedForm& form, const SealedPart& part, bool masked, int first, int last,
                uint16_t* out) {
    Line line = {};
    for (int at = first; at < last; ++at, out += LINE) {
        const LineExponents where = exponents_of(form, part.keys, part.padded, at);
        read_exponents(part.exponents + where.place, where.by_parity, line.exponents);
        const uint8_t* high = part.high + static_cast<size_t>(at) * LINE;
        for (int i = 0; i < LINE; ++i) line.high[i] = high[i];
        if (has_low) read_low(part.low + static_cast<size_t>(at) * HALF, line.low);
        if (rule == DraftRule::aligned)
            align(form, line, out);
        else
            join(line, out);
        if (rule == DraftRule::truncated) truncate(form, out);
        if (masked) leave_out(part.mask[at], out);
    }
}

template <DraftRule rule>
void open_drafts(const SealedForm& form, const SealedPart& part, int first, int last,
                 uint16_t* out) {
    const bool masked = part.mask != nullptr;
    if (rule != DraftRule::same && form.dropped >= 4)
        open_lines<rule, false>(form, part, masked, first, last, out);
    else
        open_lines<rule, true>(form, part, masked, first, last, out);
}

void open(const SealedForm& form, const SealedPart& part, bool draft, int first, int last,
          uint16_t* out) {
    uint16_t* to = out + static_cast<size_t>(first) * LINE;
    if (!draft)
        open_lines<DraftRule::same, true>(form, part, false, first, last, to);
    else if (form.rule == DraftRule::same)
        open_drafts<DraftRule::same>(form, part, first, last, to);
    else if (form.rule == DraftRule::truncated)
        open_drafts<DraftRule::truncated>(form, part, first, last, to);
    else
        open_drafts<DraftRule::aligned>(form, part, first, last, to);
    for (const Unusual* one = part.unusual; one < part.unusual + part.unusual_count; ++one)
        if (first <= one->place / LINE && one->place / LINE < last)
            out[one->place] = draft ? one->draft : one->target;
}

}  // namespace

const SealedKernels sealed_kernels = {open};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
