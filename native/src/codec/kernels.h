// Operations on whole streams. Each instruction set has a table of these; the portable one is the
// reference, and all must agree bit for bit.
//
// Bit i of a bitmap is bit i % 8 of byte i / 8. Kernels may read SLACK bytes and write 64 bytes
// past the end of buffers.
#pragma once

#include "codec/codec.h"

namespace cassandra::codec {

namespace {

// Concatenate codes.
class CodeWriter {
  public:
    explicit CodeWriter(uint8_t* to) : start_(to), to_(to) {}

    // Append `size` bits, at most 56.
    void put(uint64_t codes, unsigned size) {
        word_ |= codes << at_;
        store(to_, word_);
        at_ += size;
        to_ += at_ / 8;
        word_ >>= at_ & ~7u;
        at_ &= 7;
    }

    void put_rank(unsigned rank) { put(uint64_t{1} << rank, rank + 1); }

    // Pad with ones; return the number of bits of the codes.
    int64_t finish() {
        store(to_, word_ | ~uint64_t{0} << at_);
        std::memset(to_ + 8, 0xFF, 64);
        return 8 * (to_ - start_) + at_;
    }

  private:
    uint8_t *const start_, *to_;
    uint64_t word_ = 0;  // pending bits, fewer than 8
    unsigned at_ = 0;
};

}  // namespace

struct Kernels {
    // Convert the planes of `blocks` blocks to magnitudes; without `lows` (may be null) use
    // sign_high only, with the fill of `p`.
    void (*unblock)(const Params& p, const uint8_t* highs, const uint8_t* lows, int64_t blocks,
                    uint8_t* out);
    // Inverse of unblock: write the planes of `blocks` blocks from whole magnitudes.
    void (*block)(const Params& p, const uint8_t* magnitudes, int64_t blocks, uint8_t* highs,
                  uint8_t* lows);
    // Decode the codes in `bytes` bytes to ranks; return their number, or -1 if a run has `limit`
    // zeros.
    int64_t (*ranks)(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out);
    // out[i] = table[in[i]], in[i] < 32; return false if any in[i] >= size.
    bool (*look_up)(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out);
    // Expand bytes to the set bits of a bitmap of n positions, 0 elsewhere. Bits likewise.
    void (*spread)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out);
    void (*spread_bits)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out);
    // Inverse of spread; return the number of bytes.
    int64_t (*gather)(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense);
    int64_t (*gather_bits)(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense);
    int64_t (*gather_words)(const uint8_t* bitmap, int64_t n, const uint16_t* in, uint8_t* dense);
    // Write words of `dense` to the set bits of a bitmap; other positions stay unchanged.
    void (*put_words)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out);
    // Restore the values of all positions. Without `mask` (may be null) all are kept; pruned ones
    // become 0.
    void (*restore_unary)(const uint8_t* magnitudes, const uint8_t* exponents, const uint8_t* signs,
                          const uint8_t* mask, int64_t n, uint16_t* out);
    void (*restore_group)(const uint8_t* magnitudes, const uint8_t* groups, int group,
                          const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out);
    // Scheme exact: `stored` gets the positions that are pruned or escapes. Return false for an
    // invalid window.
    bool (*restore_exact)(const uint8_t* windows, const uint8_t* residues, const uint8_t* groups,
                          int group, const uint8_t* signs, const uint8_t* mask, int64_t n,
                          uint16_t* out, uint8_t* stored);
    // Unpack residues of windows from bits to one byte each; the inverse returns the number of
    // bits.
    void (*unpack_residues)(const uint8_t* windows, int64_t n, const uint8_t* bits, uint8_t* out);
    int64_t (*pack_residues)(const uint8_t* windows, const uint8_t* residues, int64_t n,
                             uint8_t* bits);
    // out[i] = table[exponent of values[i]].
    void (*look_up_exponents)(const uint16_t* values, int64_t n, const uint8_t* table,
                              uint8_t* out);
    // Write the codes of ranks below 32, padded with ones; return the number of bits of the codes.
    int64_t (*code)(const uint8_t* ranks, int64_t n, uint8_t* out);
    // Select the positions whose exponent has a true entry and that `kept` (may be null) keeps;
    // return their number.
    int64_t (*choose)(const uint16_t* values, const uint8_t* kept, const uint8_t* wanted, int64_t n,
                      uint8_t* bitmap);
    void (*signs)(const uint16_t* values, int64_t n, uint8_t* bitmap);
    // Choose default group exponents of values that `mask` (may be null) keeps.
    void (*group_exponents)(const Params& p, const uint16_t* values, const uint8_t* mask, int64_t n,
                            uint8_t* groups);
    // Compute mantissas; aligned significands or windows of positions.
    void (*magnitudes)(const Params& p, const uint16_t* values, const uint8_t* groups, int64_t n,
                       uint8_t* out);
    // Compute residue fields of positions, undefined where the window has none.
    void (*residue_fields)(const uint16_t* values, const uint8_t* windows, int64_t n, uint8_t* out);
    // Find the positions that are stored uncompressed, from their windows and residue fields: those
    // that `mask` (may be null) does not keep, and escapes.
    void (*escapes)(const uint8_t* windows, const uint8_t* fields, const uint8_t* mask, int64_t n,
                    uint8_t* stored);
};

// Kernels of the selected instruction set.
const Kernels& kernels();
const Walks& walks();

namespace portable {
extern const Kernels codec_kernels;
extern const Walks codec_walks;
}  // namespace portable
namespace avx2 {
extern const Kernels codec_kernels;
extern const Walks codec_walks;
}  // namespace avx2
namespace avx512 {
extern const Kernels codec_kernels;
extern const Walks codec_walks;
}  // namespace avx512
namespace neon {
extern const Kernels codec_kernels;
extern const Walks codec_walks;
}  // namespace neon

// Fast paths. Each decodes a whole segment, or returns false if the slow path must decode it (which
// also finds any error). Regions have OVERRUN readable bytes beyond their size; `out` may be
// written even on failure.
//
// Without a mask: drafts of mx and exact, and targets of mx; `ver` is null for a draft.
bool fused_avx512(const Params& p, const Region& spec, const Region* ver, int64_t count,
                  uint8_t* groups, uint16_t* out);
// Without a mask: targets of exact.
bool fused_exact_avx512(const Params& p, const Region& spec, const Region& ver, int64_t count,
                        Streams& s, uint16_t* out);
// With a mask, but for targets of exact, and unary with or without one; `ver` is null for a draft.
bool fused_masked_avx512(const Params& p, const Region& spec, const Region* ver, bool has_mask,
                         int64_t count, Streams& s, uint16_t* out);

}  // namespace cassandra::codec
