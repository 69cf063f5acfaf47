// Encode values to regions.
#include <algorithm>

#include "codec/kernels.h"
#include "common/guard.h"

namespace cassandra::codec {
namespace {

// Rank of each exponent, 255 for exponents that are not in the codebook.
struct Ranks {
    uint8_t of[256];
    Ranks(const uint8_t* book, int size, uint8_t missing) {
        std::fill(of, of + 256, missing);
        for (int i = 0; i < size; ++i) of[book[i]] = static_cast<uint8_t>(i);
    }
};

// Indices of the caller's totals: golden's stream names in the order of section 3.
enum { BITS_MASK, BITS_EXPONENT, BITS_SIGN_HIGH, BITS_LOW, BITS_RESIDUE, BITS_CODES, BITS_PRUNED };

class Encoder {
  public:
    Encoder(const Params& p, bool always_mask)
        : p_(p), always_mask_(always_mask), s_(p), k_(kernels()), walks_(walks()),
          ranks_(p.book, p.book_size, 255),
          pruned_ranks_(p.pruned_book, p.pruned_size, static_cast<uint8_t>(p.pruned_size)) {
        for (int e = 0; e < 256; ++e) wanted_[e] = !p.unary() || ranks_.of[e] != 255;
        positional_.resize(p.segment + 2 * p.beat);
        fields_.resize(2 * (p.segment + 2 * p.beat));
    }

    // Encode a segment at `spec` and `ver`, which must have room; return the sizes of the regions.
    void encode(const uint16_t* values, const uint8_t* kept, const uint8_t* groups, int64_t count,
                Region& spec, Region& ver, int64_t* bits, uint32_t& flags);

  private:
    void choose_kept(const uint16_t* values, const uint8_t* kept, int64_t count);
    void choose_groups(const uint16_t* values, const uint8_t* groups, int64_t count);
    void make_blocks(const uint16_t* values, int64_t count);
    void make_stored(const uint16_t* values, int64_t count);
    void make_coded(const uint16_t* values, int64_t count, int64_t* bits);
    int64_t make_codes(const uint16_t* values, int64_t count);
    void complete(Region& region) const;
    const uint8_t* mask() { return has_mask_ ? s_.mask.data() : nullptr; }

    const Params& p_;
    const bool always_mask_;
    Streams s_;
    const Kernels& k_;
    const Walks& walks_;
    const Ranks ranks_, pruned_ranks_;
    uint8_t wanted_[256];
    Buffer positional_, fields_;
    bool has_mask_ = false;
};

void Encoder::choose_kept(const uint16_t* values, const uint8_t* kept, int64_t count) {
    store(s_.mask.data() + count / 8, uint64_t{0});
    s_.kept = k_.choose(values, kept, wanted_, count, s_.mask.data());
    has_mask_ = always_mask_ || s_.kept != count;
}

void Encoder::choose_groups(const uint16_t* values, const uint8_t* groups, int64_t count) {
    const int64_t size = ceil_div(count, p_.group);
    store(s_.groups.data() + size, uint64_t{0});  // pads the last row
    if (groups) {
        std::memcpy(s_.groups.data(), groups, size);
        store(s_.groups.data() + size, uint64_t{0});
    } else {
        k_.group_exponents(p_, values, mask(), count, s_.groups.data());
    }
}

// Make signs, blocks and, in scheme exact, residues.
void Encoder::make_blocks(const uint16_t* values, int64_t count) {
    uint8_t* const dense = s_.magnitudes.data();
    k_.magnitudes(p_, values, s_.groups.data(), count, has_mask_ ? positional_.data() : dense);
    k_.signs(values, count, has_mask_ ? s_.spread_signs.data() : s_.signs.data());
    if (p_.exact()) {
        const uint8_t* const windows = has_mask_ ? positional_.data() : dense;
        uint8_t* const residues = s_.residues.data();
        k_.residue_fields(values, windows, count, has_mask_ ? fields_.data() : residues);
        if (has_mask_) k_.gather(mask(), count, fields_.data(), residues);
    }
    if (has_mask_) {
        k_.gather(mask(), count, positional_.data(), dense);
        k_.gather_bits(mask(), count, s_.spread_signs.data(), s_.signs.data());
    }
    if (p_.exact()) k_.pack_residues(dense, s_.residues.data(), s_.kept, s_.residue.data());
    const int64_t blocks = ceil_div(s_.kept, p_.beat);
    std::fill(dense + s_.kept, dense + blocks * p_.beat, 0);  // pads the last block
    for (int64_t i = s_.kept; i < blocks * p_.beat; ++i)
        s_.signs.data()[i / 8] &= static_cast<uint8_t>(~(1 << i % 8));
    k_.block(p_, dense, blocks, s_.highs.data(), s_.lows.data());
}

// Collect the values that are stored uncompressed.
void Encoder::make_stored(const uint16_t* values, int64_t count) {
    uint8_t* const stored = s_.stored.data();
    const uint8_t* const windows = has_mask_ ? positional_.data() : s_.magnitudes.data();
    if (p_.exact()) {
        const uint8_t* const fields = has_mask_ ? fields_.data() : s_.residues.data();
        k_.escapes(windows, fields, mask(), count, stored);
    } else {
        complement(s_.mask.data(), count, stored);
    }
    const int64_t n = k_.gather_words(stored, count, values, s_.pruned.data());
    store(s_.pruned.data() + 2 * n, uint64_t{0});
}

// Write the codes of the exponents of kept values; return their bits.
int64_t Encoder::make_codes(const uint16_t* values, int64_t count) {
    uint8_t *const ranks = s_.ranks.data(), *const all = has_mask_ ? positional_.data() : ranks;
    k_.look_up_exponents(values, count, ranks_.of, all);
    if (has_mask_) k_.gather(mask(), count, all, ranks);
    return k_.code(ranks, s_.kept, s_.codes.data());
}

void Encoder::make_coded(const uint16_t* values, int64_t count, int64_t* bits) {
    complement(s_.mask.data(), count, s_.stored.data());
    const int64_t n = k_.gather_words(s_.stored.data(), count, values, fields_.data());
    uint8_t *const ranks = s_.ranks.data(), *field = s_.pruned.data();
    k_.look_up_exponents(reinterpret_cast<const uint16_t*>(fields_.data()), n, pruned_ranks_.of,
                         ranks);
    for (int64_t i = 0; i < n; ++i) {
        const uint16_t value = load<uint16_t>(fields_.data() + 2 * i);
        field[0] = static_cast<uint8_t>((value & 0x7F) | value >> 15 << 7);
        field[1] = static_cast<uint8_t>(value >> 7);  // exponent byte of an escape
        field += 1 + (ranks[i] == p_.pruned_size);
    }
    store(field, uint64_t{0});
    bits[BITS_CODES] += k_.code(ranks, n, s_.pruned_codes.data());
}

void Encoder::complete(Region& region) const {
    const int64_t size = ceil_div(region.at, p_.superblock) * p_.superblock;
    std::fill(region.bytes + region.at, region.bytes + size, 0);
    region.size = size;
}

void Encoder::encode(const uint16_t* values, const uint8_t* kept, const uint8_t* groups,
                     int64_t count, Region& spec, Region& ver, int64_t* bits, uint32_t& flags) {
    choose_kept(values, kept, count);
    flags = has_mask_ ? FLAG_MASK : 0;
    if (!p_.unary()) choose_groups(values, groups, count);
    make_blocks(values, count);
    if (p_.unary()) {
        bits[BITS_EXPONENT] += make_codes(values, count);
    } else {
        bits[BITS_EXPONENT] += 8 * ceil_div(count, p_.group);
    }
    walks_.speculation(p_, spec, s_, count, has_mask_, true);
    complete(spec);
    if (p_.coded) {
        make_coded(values, count, bits);
    } else {
        make_stored(values, count);
    }
    walks_.verification(p_, ver, s_, count, has_mask_, true);
    complete(ver);
    bits[BITS_MASK] += has_mask_ ? count : 0;
    bits[BITS_SIGN_HIGH] += s_.kept * (1 + p_.high_bits());
    bits[BITS_LOW] += s_.kept * p_.low_planes();
    bits[BITS_RESIDUE] += s_.residue_bits;
    bits[BITS_PRUNED] += s_.pruned_bits;
}

// Count exponents in `counts`, offset by 256 for values that `is_kept`. Four tables avoid waiting
// for an entry that was just written.
template <class IsKept>
void count_exponents(const uint16_t* values, int64_t count, int64_t* counts, IsKept is_kept) {
    uint32_t tables[4][512] = {};
    constexpr int64_t RUN = int64_t{1} << 30;  // less than 2^32 per table
    for (int64_t first = 0; first < count; first += RUN) {
        const int64_t last = std::min(first + RUN, count);
        const auto place = [&](int64_t i) { return (values[i] >> 7 & 0xFF) + 256 * is_kept(i); };
        int64_t i = first;
        for (; i + 4 <= last; i += 4)
            for (int k = 0; k < 4; ++k) ++tables[k][place(i + k)];
        for (; i < last; ++i) ++tables[0][place(i)];
        for (auto& table : tables)
            for (int entry = 0; entry < 512; ++entry) {
                counts[entry] += table[entry];
                table[entry] = 0;
            }
    }
}

}  // namespace
}  // namespace cassandra::codec

// Maximum bytes of the regions of a segment of `count` values, including the overrun of walks:
// speculation, then verification.
CASSANDRA_API void cassandra_encode_room(const cassandra::codec::Params* p, int64_t count,
                                         int64_t* room) {
    using namespace cassandra::codec;
    const int64_t whole = ceil_div(count, p->group) * p->group + p->beat;
    const int64_t codes = p->unary() ? static_cast<int64_t>(Streams::code_room(*p, count)) : 0;
    room[0] = whole / 8 + 9 * whole / 8 + whole / 8 + codes + p->superblock + SLACK;
    room[1] = whole + whole + 2 * whole + codes + p->superblock + SLACK;
}

// Encode `count` values of whole segments (the last may be short), one after another.
//
// `kept` (one byte per value) and `groups` may be null. With `always_mask` every segment has a mask
// stream. `speculation` and `verification` must have the room of cassandra_encode_room for each
// segment. `directory` gets five numbers per segment. `bits` is incremented by the bits of mask,
// exponent, sign_high, low, residue, pruned_exponent and pruned. `sizes` gets the bytes written.
// Returns false on failure.
CASSANDRA_API bool cassandra_encode(const cassandra::codec::Params* p, const uint16_t* values,
                                    const uint8_t* kept, const uint8_t* groups, int64_t count,
                                    int always_mask, uint8_t* speculation, uint8_t* verification,
                                    uint32_t* directory, int64_t* bits, int64_t* sizes) {
    using namespace cassandra::codec;
    return cassandra::attempt([&] {
        Encoder encoder(*p, always_mask);
        int64_t offsets[2] = {0, 0};
        for (int64_t first = 0; first < count; first += p->segment, directory += 5) {
            const int64_t size = std::min<int64_t>(p->segment, count - first);
            Region spec{}, ver{};
            spec.bytes = speculation + offsets[0];
            ver.bytes = verification + offsets[1];
            encoder.encode(values + first, kept ? kept + first : nullptr,
                           groups ? groups + first / p->group : nullptr, size, spec, ver, bits,
                           directory[4]);
            const int64_t unit = p->superblock;
            directory[0] = static_cast<uint32_t>(offsets[0] / unit);
            directory[1] = static_cast<uint32_t>(spec.size / unit);
            directory[2] = static_cast<uint32_t>(offsets[1] / unit);
            directory[3] = static_cast<uint32_t>(ver.size / unit);
            offsets[0] += spec.size;
            offsets[1] += ver.size;
        }
        sizes[0] = offsets[0];
        sizes[1] = offsets[1];
    });
}

// Add the frequency of each exponent to `counts`: first half, values that are not in `kept` (null:
// all are kept); second half, values that are.
CASSANDRA_API void cassandra_count_exponents(const uint16_t* values, const uint8_t* kept,
                                             int64_t count, int64_t* counts) {
    using cassandra::codec::count_exponents;
    if (kept)
        return count_exponents(values, count, counts, [=](int64_t i) { return kept[i] != 0; });
    count_exponents(values, count, counts, [](int64_t) { return true; });
}
