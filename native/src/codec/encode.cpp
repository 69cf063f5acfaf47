// Encode values to regions.
#include <algorithm>

#include "codec/encoder.h"
#include "common/guard.h"

namespace cassandra::codec {

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

void Encoder::make_coded(const uint16_t* values, int64_t count) {
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
    bits_[BITS_CODES] += k_.code(ranks, n, s_.pruned_codes.data());
}

void Encoder::complete(Region& region) const {
    const int64_t size = ceil_div(region.at, p_.superblock) * p_.superblock;
    std::fill(region.bytes + region.at, region.bytes + size, 0);
    region.size = size;
}

void Encoder::speculation(const uint16_t* values, const uint8_t* kept, const uint8_t* groups,
                          int64_t count, Region& region) {
    choose_kept(values, kept, count);
    if (!p_.unary()) choose_groups(values, groups, count);
    make_blocks(values, count);
    bits_[BITS_EXPONENT] += p_.unary() ? make_codes(values, count) : 8 * ceil_div(count, p_.group);
    walks_.speculation(p_, region, s_, count, has_mask_, true);
    complete(region);
    bits_[BITS_MASK] += has_mask_ ? count : 0;
    bits_[BITS_SIGN_HIGH] += s_.kept * (1 + p_.high_bits());
}

void Encoder::verification(const uint16_t* values, int64_t count, Region& region) {
    p_.coded ? make_coded(values, count) : make_stored(values, count);
    walks_.verification(p_, region, s_, count, has_mask_, true);
    complete(region);
    bits_[BITS_LOW] += s_.kept * p_.low_planes();
    bits_[BITS_RESIDUE] += s_.residue_bits;
    bits_[BITS_PRUNED] += s_.pruned_bits;
}

Room::Room(const Params& p, int64_t count) {
    const int64_t whole = ceil_div(count, p.group) * p.group + p.beat;
    const int64_t codes = p.unary() ? static_cast<int64_t>(Streams::code_room(p, count)) : 0;
    const int64_t rest = codes + p.superblock + SLACK;
    speculation = whole / 8 + 9 * whole / 8 + whole / 8 + rest;
    verification = whole + whole + 2 * whole + rest;
}

namespace {

// Count exponents, offset by 256 for values that `is_kept`. Four tables avoid waiting for an entry
// that was just written.
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

void count_exponents(const uint16_t* values, const uint8_t* kept, int64_t count, int64_t* counts) {
    if (kept)
        return count_exponents(values, count, counts, [=](int64_t i) { return kept[i] != 0; });
    count_exponents(values, count, counts, [](int64_t) { return true; });
}

}  // namespace cassandra::codec

// Maximum bytes of the regions of a segment of `count` values, including the overrun of walks:
// speculation, then verification.
CASSANDRA_API void cassandra_encode_room(const cassandra::codec::Params* p, int64_t count,
                                         int64_t* room) {
    const cassandra::codec::Room found(*p, count);
    room[0] = found.speculation, room[1] = found.verification;
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
            encoder.speculation(values + first, kept ? kept + first : nullptr,
                                groups ? groups + first / p->group : nullptr, size, spec);
            encoder.verification(values + first, size, ver);
            const int64_t unit = p->superblock;
            directory[0] = static_cast<uint32_t>(offsets[0] / unit);
            directory[1] = static_cast<uint32_t>(spec.size / unit);
            directory[2] = static_cast<uint32_t>(offsets[1] / unit);
            directory[3] = static_cast<uint32_t>(ver.size / unit);
            directory[4] = encoder.has_mask() ? cassandra::FLAG_MASK : 0;
            offsets[0] += spec.size;
            offsets[1] += ver.size;
        }
        for (int stream = 0; stream < STREAMS; ++stream) bits[stream] += encoder.bits()[stream];
        sizes[0] = offsets[0];
        sizes[1] = offsets[1];
    });
}

// Counts exponents like codec::count_exponents.
CASSANDRA_API void cassandra_count_exponents(const uint16_t* values, const uint8_t* kept,
                                             int64_t count, int64_t* counts) {
    cassandra::codec::count_exponents(values, kept, count, counts);
}
