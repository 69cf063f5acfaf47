// What is done to whole streams. Each instruction set has a table of these; portable is the
// reference, and all must agree bit for bit.
//
// Bitmaps have bit i in bit i % 8 of byte i / 8. Buffers may be overrun by SLACK bytes
// when read, and by 64 when written.
#pragma once

#include "codec/codec.h"

namespace cassandra::codec {

namespace {

// Puts codes after one another.
class CodeWriter {
  public:
    explicit CodeWriter(uint8_t* to) : start_(to), to_(to) {}

    // `size` bits, at most 56.
    void put(uint64_t codes, unsigned size) {
        word_ |= codes << at_;
        store(to_, word_);
        at_ += size;
        to_ += at_ / 8;
        word_ >>= at_ & ~7u;
        at_ &= 7;
    }

    void put_rank(unsigned rank) { put(uint64_t{1} << rank, rank + 1); }

    // Ones after the codes; bits of these.
    int64_t finish() {
        store(to_, word_ | ~uint64_t{0} << at_);
        std::memset(to_ + 8, 0xFF, 64);
        return 8 * (to_ - start_) + at_;
    }

  private:
    uint8_t *const start_, *to_;
    uint64_t word_ = 0;  // what is not stored whole: fewer than 8 bits
    unsigned at_ = 0;
};

}  // namespace

struct Kernels {
    // Magnitudes of `blocks` blocks from their planes; without `lows` (may be null) those of
    // sign_high alone, with the fill of `p`.
    void (*unblock)(const Params& p, const uint8_t* highs, const uint8_t* lows, int64_t blocks,
                    uint8_t* out);
    // The inverse: planes of `blocks` blocks from whole magnitudes.
    void (*block)(const Params& p, const uint8_t* magnitudes, int64_t blocks, uint8_t* highs,
                  uint8_t* lows);
    // Ranks of the codes in `bytes` bytes; their number, or -1 if a run has `limit` zeros.
    int64_t (*ranks)(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out);
    // out[i] = table[in[i]], in[i] < 32; false if an in[i] is `size` or more.
    bool (*look_up)(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out);
    // Bytes of the set bits of a bitmap of n to their positions; 0 elsewhere. And bits likewise.
    void (*spread)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out);
    void (*spread_bits)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out);
    // The inverse; how many there are.
    int64_t (*gather)(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense);
    int64_t (*gather_bits)(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense);
    int64_t (*gather_words)(const uint8_t* bitmap, int64_t n, const uint16_t* in, uint8_t* dense);
    // Words of `dense` to the set bits of a bitmap; the others stay.
    void (*put_words)(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out);
    // Values of all positions. Without `mask` (may be null) all are kept; pruned ones become 0.
    void (*restore_unary)(const uint8_t* magnitudes, const uint8_t* exponents, const uint8_t* signs,
                          const uint8_t* mask, int64_t n, uint16_t* out);
    void (*restore_group)(const uint8_t* magnitudes, const uint8_t* groups, int group,
                          const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out);
    // Scheme exact: `stored` gets the positions that are pruned or escapes. False if a window is
    // broken.
    bool (*restore_exact)(const uint8_t* windows, const uint8_t* residues, const uint8_t* groups,
                          int group, const uint8_t* signs, const uint8_t* mask, int64_t n,
                          uint16_t* out, uint8_t* stored);
    // Residues of windows from their bits, one byte each; and the inverse, which gives bits.
    void (*unpack_residues)(const uint8_t* windows, int64_t n, const uint8_t* bits, uint8_t* out);
    int64_t (*pack_residues)(const uint8_t* windows, const uint8_t* residues, int64_t n,
                             uint8_t* bits);
    // out[i] = table[exponent of values[i]].
    void (*look_up_exponents)(const uint16_t* values, int64_t n, const uint8_t* table,
                              uint8_t* out);
    // Codes of ranks below 32, and ones after them; how many bits the codes have.
    int64_t (*code)(const uint8_t* ranks, int64_t n, uint8_t* out);
    // Positions whose exponent has a true entry, and which `kept` (may be null) keeps; how many
    // there are.
    int64_t (*choose)(const uint16_t* values, const uint8_t* kept, const uint8_t* wanted, int64_t n,
                      uint8_t* bitmap);
    void (*signs)(const uint16_t* values, int64_t n, uint8_t* bitmap);
    // Default group exponents of values that `mask` (may be null) keeps.
    void (*group_exponents)(const Params& p, const uint16_t* values, const uint8_t* mask, int64_t n,
                            uint8_t* groups);
    // Mantissas; aligned significands or windows of positions.
    void (*magnitudes)(const Params& p, const uint16_t* values, const uint8_t* groups, int64_t n,
                       uint8_t* out);
    // Residue fields of positions, meaningless where the window has none.
    void (*residue_fields)(const uint16_t* values, const uint8_t* windows, int64_t n, uint8_t* out);
    // Positions that are stored whole, from windows and residue fields of positions: those that
    // `mask` (may be null) does not keep, and escapes.
    void (*escapes)(const uint8_t* windows, const uint8_t* fields, const uint8_t* mask, int64_t n,
                    uint8_t* stored);
};

// Kernels of the instruction set in use.
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

// The short ways. Each decodes a segment at once, or is false if that must be done
// the other way (which finds any error). Regions have OVERRUN bytes beyond their size that may be
// read; `out` may be written to all the same.
//
// Without a mask: drafts of mx and exact, and targets of mx; `ver` is null for a draft.
bool fused_avx512(const Params& p, const Region& spec, const Region* ver, int64_t count,
                  uint8_t* groups, uint16_t* out);
// Without a mask: targets of exact.
bool fused_exact_avx512(const Params& p, const Region& spec, const Region& ver, int64_t count,
                        Streams& s, uint16_t* out);
// With a mask: targets of exact.
bool fused_exact_masked_avx512(const Params& p, const Region& spec, const Region& ver,
                               int64_t count, Streams& s, uint16_t* out);
// Targets of unary with coded exponents of pruned values.
bool fused_coded_avx512(const Params& p, const Region& spec, const Region& ver, bool has_mask,
                        int64_t count, Streams& s, uint16_t* out);
// Segments with a mask, and unary with or without one, not those; `ver` is null for a draft.
bool fused_masked_avx512(const Params& p, const Region& spec, const Region* ver, bool has_mask,
                         int64_t count, Streams& s, uint16_t* out);

}  // namespace cassandra::codec
