// Decode regions to values.
#include <algorithm>
#include <new>
#include <vector>

#include "codec/decoder.h"
#include "common/guard.h"
#include "common/pool.h"

namespace cassandra::codec {
namespace {

// Return the bytes of a region, cut off at the end of the array like a slice.
Region region_of(const uint8_t* bytes, int64_t size, uint64_t offset, uint64_t length,
                 uint64_t unit) {
    const uint64_t total = static_cast<uint64_t>(size);
    const uint64_t first = offset * unit < total ? offset * unit : total;
    const uint64_t last = (offset + length) * unit < total ? (offset + length) * unit : total;
    Region region{};
    region.bytes = const_cast<uint8_t*>(bytes) + first;
    region.size = static_cast<int64_t>(last - first);
    region.readable = static_cast<int64_t>(total - first);
    return region;
}

}  // namespace

bool Decoder::codes_are_good() {
    return k_.ranks(s_.codes.data(), s_.code_bytes, p_.codebook, s_.ranks.data()) >= 0;
}

int Decoder::read_codes() {
    if (!codes_are_good()) return CAUSE_CODE;
    const bool known =
        k_.look_up(s_.ranks.data(), s_.kept, p_.book, p_.book_size, s_.exponents.data());
    return known ? OK : CAUSE_RANK;
}

int Decoder::read_speculation(Segment& segment) {
    int cause =
        walks_.speculation(p_, segment.speculation, s_, segment.count, segment.has_mask, false);
    // Runaway zeros make a region seem too short.
    if (cause == CAUSE_SHORT && p_.unary() && !codes_are_good()) return CAUSE_CODE;
    if (cause == OK) cause = check_length(segment.speculation);
    if (cause != OK) return cause;
    if (p_.unary()) return read_codes();
    return legal_groups(p_, s_.groups.data(), segment.count) ? OK : CAUSE_GROUP;
}

// Expand one byte per kept value to one byte per position.
const uint8_t* Decoder::placed(const Segment& segment, Buffer& dense, Buffer& room) {
    if (!segment.has_mask) return dense.data();
    k_.spread(s_.mask.data(), segment.count, dense.data(), room.data());
    return room.data();
}

const uint8_t* Decoder::placed_signs(const Segment& segment) {
    if (!segment.has_mask) return s_.signs.data();
    k_.spread_bits(s_.mask.data(), segment.count, s_.signs.data(), s_.spread_signs.data());
    return s_.spread_signs.data();
}

void Decoder::restore(const Segment& segment, uint16_t* out) {
    const uint8_t* const magnitudes = placed(segment, s_.magnitudes, s_.spread);
    const uint8_t *const signs = placed_signs(segment), *const mask = mask_or_null(segment);
    if (p_.unary()) {
        const uint8_t* const exponents = placed(segment, s_.exponents, s_.spread_more);
        k_.restore_unary(magnitudes, exponents, signs, mask, segment.count, out);
    } else {
        k_.restore_group(magnitudes, s_.groups.data(), p_.group, signs, mask, segment.count, out);
    }
}

// Return the region, or a copy with OVERRUN readable bytes beyond its size.
Region Decoder::roomy(const Region& region, Buffer& room) {
    if (region.readable - region.size >= OVERRUN) return region;
    room.resize(region.size + OVERRUN);
    std::memcpy(room.data(), region.bytes, region.size);
    Region copy = region;
    copy.bytes = room.data();
    copy.readable = region.size + OVERRUN;
    return copy;
}

// Decode by the fast path; return false if it does not apply.
bool Decoder::fused(const Segment& segment, bool want_target, uint16_t* out) {
#ifdef CASSANDRA_HAVE_AVX512
    const bool slow = p_.absent_bits() || p_.coded || (p_.exact() && segment.has_mask);
    if (current_isa() < Isa::avx512 || (want_target && slow)) return false;
    const Region speculation = roomy(segment.speculation, speculation_room_);
    Region rest = segment.verification;
    if (want_target) rest = roomy(rest, verification_room_);
    const Region* const verification = want_target ? &rest : nullptr;
    if (want_target && p_.exact())
        return fused_exact_avx512(p_, speculation, rest, segment.count, s_, out);
    if (p_.unary() || segment.has_mask)
        return fused_masked_avx512(p_, speculation, verification, segment.has_mask, segment.count,
                                   s_, out);
    return fused_avx512(p_, speculation, verification, segment.count, s_.groups.data(), out);
#else
    (void)segment, (void)want_target, (void)out;
    return false;
#endif
}

int Decoder::decode(Segment segment, bool want_target, uint16_t* out) {
    if (fused(segment, want_target, out)) return OK;
    if (const int cause = read_speculation(segment); cause != OK) return cause;
    if (want_target) return target(segment, out);
    k_.unblock(p_, s_.highs.data(), nullptr, blocks(), s_.magnitudes.data());
    restore(segment, out);
    return OK;
}

int Decoder::target(Segment& segment, uint16_t* out) {
    if (p_.exact()) {
        Params plain = p_;
        plain.fill = 0;
        k_.unblock(plain, s_.highs.data(), nullptr, blocks(), s_.magnitudes.data());
    }
    int cause =
        walks_.verification(p_, segment.verification, s_, segment.count, segment.has_mask, false);
    if (cause == OK) cause = check_length(segment.verification);
    if (cause != OK) return cause;
    if (p_.exact()) {
        k_.unpack_residues(s_.magnitudes.data(), s_.kept, s_.residue.data(), s_.residues.data());
        return exact_target(segment, out);
    }
    k_.unblock(p_, s_.highs.data(), s_.lows.data(), blocks(), s_.magnitudes.data());
    restore(segment, out);
    if (segment.has_mask) p_.coded ? put_coded(segment, out) : put_pruned(segment, out);
    return OK;
}

int Decoder::exact_target(const Segment& segment, uint16_t* out) {
    const uint8_t* const windows = placed(segment, s_.magnitudes, s_.spread);
    const uint8_t* const residues = placed(segment, s_.residues, s_.spread_more);
    const bool good =
        k_.restore_exact(windows, residues, s_.groups.data(), p_.group, placed_signs(segment),
                         mask_or_null(segment), segment.count, out, s_.stored.data());
    if (!good) return CAUSE_WINDOW;
    if (segment.has_mask || s_.escapes)
        k_.put_words(s_.stored.data(), segment.count, s_.pruned.data(), out);
    return OK;
}

void Decoder::put_pruned(const Segment& segment, uint16_t* out) {
    complement(s_.mask.data(), segment.count, s_.stored.data());
    k_.put_words(s_.stored.data(), segment.count, s_.pruned.data(), out);
}

void Decoder::put_coded(const Segment& segment, uint16_t* out) {
    const uint8_t *rank = s_.ranks.data(), *field = s_.pruned.data();
    for (int64_t i = 0; i < segment.count; ++i) {
        if (s_.mask.data()[i / 8] >> i % 8 & 1) continue;
        const bool escape = *rank == p_.pruned_size;
        const int exponent = escape ? field[1] : p_.pruned_book[*rank];
        out[i] = static_cast<uint16_t>(*field >> 7 << 15 | exponent << 7 | (*field & 0x7F));
        field += 1 + escape;
        ++rank;
    }
}

}  // namespace cassandra::codec

namespace {

using namespace cassandra::codec;

// A packed tensor in memory; `directory` has five numbers per segment.
struct PackedTensor {
    const Params& params;
    const uint8_t* regions[2];  // speculation, verification
    int64_t sizes[2];
    const uint32_t* directory;
    int64_t count;

    Segment segment(int64_t index) const {
        const uint32_t* const entry = directory + 5 * index;
        const uint64_t unit = params.superblock;
        Segment result{};
        result.speculation = region_of(regions[0], sizes[0], entry[0], entry[1], unit);
        result.verification = region_of(regions[1], sizes[1], entry[2], entry[3], unit);
        result.count = std::min<int64_t>(count - index * params.segment, params.segment);
        result.has_mask = entry[4] & cassandra::FLAG_MASK;
        return result;
    }
};

// The segments that one thread decodes, and how that ended: OK, or the cause of the error in the
// segment `at`.
struct Run {
    int64_t at, last;
    int cause = OK;

    void decode(const PackedTensor& tensor, bool target, uint16_t* out) {
        Decoder decoder(tensor.params);
        for (; at < last; ++at) {
            cause = decoder.decode(tensor.segment(at), target, out);
            if (cause != OK) return;
            out += tensor.params.segment;
        }
    }
};

}  // namespace

// Decode segments `first` to `last` of a packed tensor of `count` values with some threads; `out`
// begins with the first of their values. `directory` has five numbers per segment. Returns OK (-1),
// FAILED, or the cause of the error (index in cassandra_spec.golden.format.ERROR_CAUSES) in segment
// `*failed`, the first that has one.
CASSANDRA_API int cassandra_decode(const cassandra::codec::Params* p, const uint8_t* speculation,
                                   int64_t speculation_size, const uint8_t* verification,
                                   int64_t verification_size, const uint32_t* directory,
                                   int64_t first, int64_t last, int64_t count, int target,
                                   int threads, uint16_t* out, int64_t* failed) {
    const PackedTensor tensor{
        *p, {speculation, verification}, {speculation_size, verification_size}, directory, count};
    std::vector<Run> runs;
    const auto decode = [&] {
        for (int i = 0; i < threads; ++i)
            runs.push_back(
                {first + (last - first) * i / threads, first + (last - first) * (i + 1) / threads});
        cassandra::Pool(threads, false).run_guarded([&](int thread) {
            Run& own = runs[static_cast<size_t>(thread)];
            own.decode(tensor, target, out + (own.at - first) * p->segment);
        });
    };
    if (!cassandra::attempt(decode)) return cassandra::FAILED;
    for (const Run& run : runs) {
        *failed = run.at;
        if (run.cause != OK) return run.cause;
    }
    return OK;
}
