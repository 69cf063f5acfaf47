// The codec of docs/format.md: types and functions that its parts share.
//
// A segment is decoded in two steps. A walk follows the demand schedule (section 6) and copies the
// rows of each stream from the region into a buffer of the stream; kernels then convert whole
// streams to values. Encoding is the reverse, with the same walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/isa.h"
#include "format_constants.h"

namespace cassandra::codec {

constexpr int OK = -1;  // no Cause

// Parameters of a packed tensor; native/codec.py has the same fields.
struct Params {
    int32_t scheme, truncated, significand, fill, group, segment, codebook, coded;
    int32_t beat, window, lead, superblock;
    int32_t book_size, pruned_size;
    uint8_t book[32], pruned_book[32];

    bool unary() const { return scheme == SCHEME_UNARY; }
    bool exact() const { return scheme == SCHEME_EXACT; }
    int magnitude_bits() const { return unary() ? 7 : 8; }
    int high_bits() const { return magnitude_bits() - truncated; }  // planes besides the sign
    int absent_bits() const { return 8 - significand; }  // low bits that a target of mx lacks
    int low_planes() const { return truncated - absent_bits(); }
    int row_bytes() const { return beat / 8; }
};

// Bytes of padding after the contents of every buffer, so that kernels may overrun.
constexpr size_t SLACK = 256;

// Readable bytes that the fast paths require beyond a region.
constexpr int64_t OVERRUN = 1024;

struct Buffer {
    std::vector<uint8_t> bytes;
    void resize(size_t size) { bytes.resize(size + SLACK); }
    uint8_t* data() { return bytes.data(); }
    size_t size() const { return bytes.size() - SLACK; }
};

// The streams of one segment, separated, and the results of kernels.
//
// `mask` is a bitmap of positions, `signs` one of kept values. `highs` and `lows` have `beat` bytes
// per block, which are 8 rows: the planes of sign_high below the sign, and those of low.
// `magnitudes`, `exponents` and `residues` have one byte per kept value.
struct Streams {
    Buffer mask, codes, groups, signs, highs, lows, residue, pruned, pruned_codes;
    Buffer magnitudes, exponents, residues, spread, spread_more, spread_signs, stored, ranks;
    std::vector<int32_t> needs;   // bits of `pruned` per beat
    std::vector<int32_t> starts;  // first bit of each beat's residues
    int64_t kept = 0;             // kept values
    int64_t code_bytes = 0;       // read from `codes`
    int64_t residue_bits = 0;
    int64_t pruned_bits = 0;
    int64_t escapes = 0;  // kept values that are stored uncompressed

    explicit Streams(const Params& p) {
        const size_t n = p.segment, codes_size = code_room(p, p.segment);
        const size_t rows = n + p.beat * 2;  // bytes for one byte per value, in whole blocks
        for (Buffer* b : {&mask, &signs, &spread_signs, &stored}) b->resize(rows / 8);
        for (Buffer* b : {&groups, &highs, &lows, &magnitudes, &exponents, &residues, &spread,
                          &spread_more, &residue})
            b->resize(rows);
        pruned.resize(2 * rows);
        if (p.unary()) codes.resize(codes_size);
        if (p.coded) pruned_codes.resize(codes_size);
        ranks.resize(p.unary() ? 8 * codes_size : 0);
        needs.resize(n / p.beat + 2);
        starts.resize(n / p.beat + 2);
    }

    // Return the maximum bytes of `count` codes without overlong runs.
    static size_t code_room(const Params& p, int64_t count) {
        return p.codebook * (count + p.beat + p.window * p.beat) / 8 + 2 * p.window * p.row_bytes();
    }
};

// A region during a walk: read when decoding, written when encoding.
struct Region {
    uint8_t* bytes;
    int64_t size;      // of the region (decoding)
    int64_t readable;  // accessible bytes from `bytes` on
    int64_t at = 0;
};

// Walk a region; return a Cause, or OK. `encode` selects the direction.
using WalkFunction = int (*)(const Params&, Region&, Streams&, int64_t count, bool has_mask,
                             bool encode);
struct Walks {
    WalkFunction speculation, verification;
};

// Properties of windows for the walk: total bits of their residues, and whether any may be an
// escape.
struct Widths {
    int64_t bits;
    bool special;
};

// Properties of ranks for the walk: how many match, and whether any is larger.
struct Matches {
    int64_t equal;
    bool above;
};

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Return true if the group exponents of `count` values are valid.
static inline bool legal_groups(const Params& p, const uint8_t* groups, int64_t count) {
    bool good = true;
    for (int64_t i = 0; i < ceil_div(count, p.group); ++i)
        good &= groups[i] != 0 && (groups[i] != 255 || p.exact());
    return good;
}

// Write the complement of a mask of n positions; positions past the end are 0.
static inline void complement(const uint8_t* mask, int64_t n, uint8_t* out) {
    for (int64_t i = 0; i < ceil_div(n, 8); ++i) out[i] = static_cast<uint8_t>(~mask[i]);
    if (n % 8) out[n / 8] &= static_cast<uint8_t>((1 << n % 8) - 1);
}

// Swap bit (i, j) with bit (j, i): byte i of the result has bit i of every byte.
static inline uint64_t transposed(uint64_t x) {
    uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ull;
    return x ^ t ^ (t << 28);
}

template <class T> static inline T load(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T> static inline void store(uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

}  // namespace cassandra::codec
