// Sealed chunks: committed keys and values in 12 bits or less, with the draft's view of them.
//
// docs/format.md defines the values that a target and a draft read. This form stores both bit for
// bit, in planes of a fixed size, so that a chunk is expanded into the L1 cache while attention
// reads it:
//
//   high       8 bits a value: distance of its exponent below the group's, sign, 3 mantissa bits
//   low        4 bits a value: the rest of the mantissa; a draft that drops 4 bits skips the plane
//   exponents  8 bits a group
//   mask       1 bit a value, if the draft leaves out some: 0 drafts as zero
//
// Values that do not fit the planes are listed beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/attention.h"

namespace cassandra {

// Relation of a draft's value to the target's.
enum class DraftRule : int32_t {
    same,       // the target's value
    truncated,  // low bits of the mantissa are dropped (scheme unary)
    aligned     // low bits of the significand, aligned to the group, are (scheme exact)
};

struct SealedForm {
    DraftRule rule;
    int32_t dropped;   // bits, 0..7
    int32_t midpoint;  // value of the highest dropped bit
    int32_t by_token;  // 1: a group runs over dimensions, 0: over positions
    int32_t group;     // values of a group, a power of two from 16 on
};

struct Unusual {
    uint16_t place;  // in the order of ChunkCache
    uint16_t target, draft;
};

constexpr int LINE = 32;  // values that are contiguous: 16 pairs

// Keys or values of one head in a sealed chunk.
struct SealedPart {
    const uint8_t* high;       // [CHUNK * padded]
    const uint8_t* low;        // [CHUNK * padded / 2]
    const uint8_t* exponents;  // [groups, CHUNK] by token, [groups, padded] by channel
    const uint32_t* mask;      // [CHUNK * padded / LINE], or null
    const Unusual* unusual;
    int unusual_count;
    int padded;
    bool keys;  // true if pairs are of dimensions
};

// Start of a line's exponents: one for each of its two parities, or of its 16 pairs.
struct LineExponents {
    size_t place;
    bool by_parity;
};

inline LineExponents exponents_of(const SealedForm& form, bool keys, int padded, int position,
                                  int dimension) {
    const int shift = __builtin_ctz(static_cast<unsigned>(form.group));  // a power of two
    const size_t place = form.by_token
                             ? static_cast<size_t>(dimension >> shift) * CHUNK + position
                             : static_cast<size_t>(position >> shift) * padded + dimension;
    return {place, keys != (form.by_token != 0)};
}

// Lines of keys lie side by side for a block of positions, those of values for a pair.
inline int positions_of_line(bool keys) { return keys ? BLOCK : 2; }
inline int dimensions_of_line(bool keys) { return keys ? 2 : 16; }

// Return the group of a value, as an index among the exponents.
inline size_t group_of(const SealedForm& form, bool keys, int padded, int place) {
    const int across = padded / dimensions_of_line(keys), line = place / LINE;
    const LineExponents found =
        exponents_of(form, keys, padded, line / across * positions_of_line(keys),
                     line % across * dimensions_of_line(keys));
    return found.place + (found.by_parity ? place % 2 : place % LINE / 2);
}

// Number of exponents of one head's keys or values.
inline size_t exponent_count(const SealedForm& form, int padded) {
    const auto groups = [&](int count) { return (count + form.group - 1) / form.group; };
    return form.by_token ? static_cast<size_t>(groups(padded)) * CHUNK
                         : static_cast<size_t>(groups(CHUNK)) * padded;
}

// Return the groups of all values of a chunk's keys or values.
std::vector<uint32_t> groups_of(const SealedForm& form, bool keys, int padded);

struct SealedKernels {
    // Write blocks first..last - 1 as BF16 to their places in `out`, as target or draft.
    void (*open)(const SealedForm& form, const SealedPart& part, bool draft, int first, int last,
                 uint16_t* out);
};

namespace portable {
extern const SealedKernels sealed_kernels;
}
namespace avx2 {
extern const SealedKernels sealed_kernels;
}
namespace avx512 {
extern const SealedKernels sealed_kernels;
}
namespace neon {
extern const SealedKernels sealed_kernels;
}

// Kernels of the selected instruction set.
const SealedKernels& sealed_kernels();

// A chunk of one slot: keys and values of all layers and heads. Immutable once filled.
class SealedChunk {
  public:
    SealedChunk(const SealedForm& form, int parts, int padded);

    // Fill a part with the target's and the draft's values, in the order of ChunkCache; `groups`
    // comes from groups_of().
    void fill(int number, bool keys, const std::vector<uint32_t>& groups, const uint16_t* target,
              const uint16_t* draft);

    SealedPart part(int number, bool keys) const;
    const SealedForm& form() const { return form_; }
    size_t bytes() const;

  private:
    struct Part {
        std::vector<uint8_t> planes;  // high, low, exponents
        std::vector<uint32_t> mask;
        std::vector<Unusual> unusual;
    };

    SealedForm form_;
    int padded_;
    std::vector<Part> parts_;
};

}  // namespace cassandra
