// Targets of scheme exact without a mask, for beats of 16 values and lead 1.
//
// The place of a beat's rows depends on the residues of earlier beats. A walk over 16 beats finds
// only these places: it needs the widths of residues, which are the leading zeros of windows, and
// counts them in planes, 16 values at a time. The walk's inputs from speculation data are prepared
// before it, and values are assembled after it, both 64 at a time.
#include <algorithm>
#include <cstddef>

#include "codec/avx512/fused.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

// Residues of 64 windows in ORDER, one byte each. The starts of the residues of four beats (bits,
// modulo 2^16) are words of a vector, `stride` words apart, from word `offset` on. `bits` points to
// the byte that contains `first`, the first of these bits.
class ResidueBytes {
  public:
    ResidueBytes(int stride, int offset) : starts_(starts(stride, offset)) {}

    __m512i at(const uint8_t* bits, __m512i places, int64_t first, __m512i widths) const {
        // start of each block of 8; a beat's second block follows its first
        const __m512i sums = _mm512_sad_epu8(widths, _mm512_setzero_si512());
        const __m512i beats = _mm512_maskz_permutexvar_epi16(0x11111111, starts_, places);
        const __m512i start = _mm512_maskz_sub_epi16(
            0x11111111, beats, _mm512_set1_epi16(static_cast<short>(first & ~7)));
        const __m512i blocks =
            _mm512_mask_add_epi64(start, 0xCC, start, _mm512_permutex_epi64(sums, 0x44));
        const __m512i byte = _mm512_shuffle_epi8(_mm512_srli_epi64(blocks, 3), first_byte_);
        const __m512i fields =
            _mm512_permutexvar_epi8(_mm512_add_epi8(byte, seven_), load512(bits));
        // start of each value's bits within the 8 bytes of its block
        __m512i place = _mm512_ternarylogic_epi64(blocks, _mm512_set1_epi64(7),
                                                  _mm512_slli_epi64(widths, 8), 0xEA);
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 8));
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 16));
        place = _mm512_add_epi8(place, _mm512_slli_epi64(place, 32));
        return _mm512_multishift_epi64_epi8(place, fields);
    }

  private:
    static __m512i starts(int stride, int offset) {
        alignas(64) uint16_t index[32] = {};
        for (int word = 0; word < 8; ++word)
            index[4 * word] = static_cast<uint16_t>(stride * (ORDER[word] / 2) + offset);
        return load512(index);
    }
    const __m512i starts_;
    const __m512i first_byte_ = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0808080808080808, 0));
    const __m512i seven_ = _mm512_set1_epi64(0x0706050403020100);
};

class ExactValues {
  public:
    // Summary of the windows seen: zeros, invalid windows.
    struct Found {
        uint64_t zeros = 0, broken = 0;
    };

    // `stride` and `offset` give the starts of residues as for ResidueBytes.
    ExactValues(int log2_group, Streams& s, int stride, int offset)
        : exponents_(log2_group), residues_(stride, offset), groups_(s.groups.data()),
          residue_(s.residue.data()) {}

    // Write 64 values from `position` on, given `window` and `kept` in ORDER; windows of pruned
    // values are 0. Residues begin at `bits`, those of each beat at `places`; `stored` is advanced.
    void put(int64_t position, __m512i window, uint64_t kept, uint64_t minus, __m512i places,
             int64_t bits, const uint8_t*& stored, uint16_t* out, Found& found) const {
        const __m512i one = _mm512_set1_epi8(1), power = leading_power(window);
        const uint64_t some = _mm512_test_epi8_mask(window, window);
        const __m512i mask =
            _mm512_mask_sub_epi8(_mm512_maskz_mov_epi8(kept, one), some, power, one);
        const __m512i width = _mm512_popcnt_epi8(mask);
        const __m512i field =
            residues_.at(residue_ + (static_cast<uint64_t>(bits) >> 3), places, bits, width);
        const uint64_t flags = _mm512_test_epi8_mask(field, one) & kept;
        const uint64_t full =
            _mm512_cmpeq_epi8_mask(window, _mm512_set1_epi8(static_cast<char>(ESCAPE_WINDOW)));
        const __m512i group = exponents_.at(groups_, position);
        found.broken |= _mm512_mask_cmple_epu8_mask(some, group, width);
        found.zeros |= flags & ~some;
        const __m512i shifted = _mm512_gf2p8mul_epi8(window, power);
        const __m512i mantissa =
            _mm512_maskz_mov_epi8(some, _mm512_ternarylogic_epi64(shifted, field, mask, 0xF8));
        const __m512i exponent = _mm512_maskz_sub_epi8(some, group, width);
        const uint64_t whole = in_order(full | ~(some | flags));
        put_half(_mm512_unpacklo_epi8(mantissa, exponent), static_cast<uint32_t>(minus),
                 static_cast<uint32_t>(whole), stored, out);
        put_half(_mm512_unpackhi_epi8(mantissa, exponent), static_cast<uint32_t>(minus >> 32),
                 static_cast<uint32_t>(whole >> 32), stored, out + 32);
    }

  private:
    static void put_half(__m512i words, uint32_t minus, uint32_t whole, const uint8_t*& stored,
                         uint16_t* out) {
        _mm512_storeu_si512(
            out, _mm512_mask_expand_epi16(assembled(words, minus), whole, in_register(stored)));
        stored += 2 * static_cast<int64_t>(_mm_popcnt_u32(whole));
    }

    const GroupBytes exponents_;
    const ResidueBytes residues_;
    const uint8_t *const groups_, *const residue_;
};

constexpr int LANES = 0xFFFF, CHUNK = 16 * BEAT, RING = 2 * CHUNK;  // values

// The walk's result for a beat: rows of low, and the start of its residues (bits, modulo 2^16).
struct Record {
    uint8_t low[14];
    uint16_t start;
};

// Two chunks; positions modulo RING.
struct alignas(64) Ring {
    uint8_t highs[RING];  // high bits of windows, in ORDER
    Record records[RING / BEAT];
    uint64_t signs[RING / STEP];
    // Per beat: lanes whose high bits are not 0, and lanes whose high bits are all 1 (in the top
    // word; the other words are 0 and ones). Also the bits of the beat's residues if the low bits
    // of windows were 0 and windows of 0 were not special.
    uint64_t some[RING / BEAT], full[RING / BEAT];
    int64_t bits[RING / BEAT];
};

// Fill the ring from speculation data.
class Highs {
  public:
    Highs(const Params& p, const Speculation& from, Ring& ring)
        : from_(from), ring_(ring), planes_(p, false, 0), fixed_(16 * p.truncated - 7 * BEAT),
          high_bits_(static_cast<char>(p.high_bits())),
          all_(static_cast<char>(0xFF << p.truncated)) {
        // Permutes masks in ORDER to the top words of four beats.
        alignas(64) uint8_t index[64] = {};
        for (int beat = 0; beat < 4; ++beat)
            for (int half = 0; half < 2; ++half) {
                const int* const place = std::find(ORDER, ORDER + 8, 2 * beat + half);
                index[8 * beat + 6 + half] = static_cast<uint8_t>(place - ORDER);
            }
        tops_ = _mm512_castsi512_si256(load512(index));
    }

    // Store 64 values from `position` on.
    void put(int64_t position) {
        const int64_t at = position % RING, beat = at / BEAT;
        const __m512i rows = four(from_.block(position), from_.stride);
        const __m512i window = planes_.bytes(rows, rows);
        _mm512_store_si512(ring_.highs + at, window);
        ring_.signs[at / STEP] = planes_.signs(rows);
        const __m512i below = _mm512_sub_epi8(leading_power(window), _mm512_set1_epi8(1));
        const __m512i zeros =
            _mm512_min_epu8(_mm512_popcnt_epi8(below), _mm512_set1_epi8(high_bits_));
        const __m512i blocks = _mm512_sad_epu8(zeros, _mm512_setzero_si512());
        const __m512i beats = _mm512_add_epi64(blocks, _mm512_permutex_epi64(blocks, 0x4E));
        const __m512i bits =
            _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 0, 0, 0, 0), beats);
        store256(ring_.bits + beat,
                 _mm256_add_epi64(_mm512_castsi512_si256(bits), _mm256_set1_epi64x(fixed_)));
        const __m256i others = _mm256_set1_epi64x(static_cast<long long>(~uint64_t{0} >> 16));
        store256(ring_.some + beat, tops(_mm512_test_epi8_mask(window, window)));
        store256(
            ring_.full + beat,
            _mm256_or_si256(tops(_mm512_cmpeq_epi8_mask(window, _mm512_set1_epi8(all_))), others));
    }

  private:
    __m256i tops(uint64_t mask) const {
        const __m256i bytes =
            _mm256_castsi128_si256(_mm_cvtsi64_si128(static_cast<long long>(mask)));
        return _mm256_maskz_permutexvar_epi8(0xC0C0C0C0, tops_, bytes);
    }
    template <class Word> static void store256(Word* to, __m256i words) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to), words);
    }

    const Speculation& from_;
    Ring& ring_;
    const Planes planes_;
    const int64_t fixed_;
    const char high_bits_, all_;
    __m256i tops_;
};

// Properties of a beat that determine the place of later rows.
struct Needs {
    int64_t bits;     // of residues
    int64_t escapes;  // bytes of uncompressed values, if no window of 0 is a zero
};

// Four low planes are treated as words of one number; each one is spread to the planes below it, so
// the remaining zeros are leading zeros.
template <int TRUNCATED> inline Needs needs_of(const Ring& ring, int64_t beat, const uint8_t* low) {
    constexpr int LAST = TRUNCATED < 4 ? TRUNCATED : 4, REPEATED = 4 - LAST;
    uint64_t some = ring.some[beat], full = ring.full[beat];
    int64_t bits = ring.bits[beat];
    for (int plane = TRUNCATED - 1; plane >= 4; --plane) {
        const uint64_t row = uint64_t{load<uint16_t>(low + ROW * plane)} << 48;
        some |= row;
        full &= row | ~uint64_t{0} >> 16;
        bits -= ones(some);
    }
    const uint64_t rows = load<uint64_t>(low) << 16 * REPEATED;
    some |= rows;
    some |= some >> 16;
    some |= some >> 32;
    full &= rows | ((uint64_t{1} << 16 * REPEATED) - 1);
    full &= full >> 16;
    full &= full >> 32;
    // fields below the last plane repeat it; a window of 0 has one bit instead of eight
    const int64_t found = ones(some & LANES);
    bits -= ones(some);
    return {bits + (REPEATED + 7) * found, 2 * (BEAT - found + ones(full))};
}

// Count the zeros among the windows of 0 of a beat whose residues begin at `bit` of `residue`.
int64_t zeros_of(const Params& p, const uint8_t* high, const uint8_t* low, const uint8_t* residue,
                 int64_t bit) {
    uint32_t empty[8], some = 0;  // lanes that are 0 down to each plane
    for (int plane = 7; plane >= 0; --plane) {
        some |= load<uint16_t>(plane < p.truncated ? low + ROW * plane : high + ROW * (7 - plane));
        empty[plane] = ~some & LANES;
    }
    int64_t zeros = 0;
    for (uint32_t left = empty[0]; left; left &= left - 1) {
        const uint32_t before = (left & -left) - 1;
        int64_t flag = bit - 7 * ones(empty[0] & before);
        for (const uint32_t lanes : empty) flag += ones(lanes & before);
        zeros += residue[flag / 8] >> flag % 8 & 1;
    }
    return zeros;
}

// Copy the rows of low, residue and pruned to separate buffers.
template <int TRUNCATED> class Walk {
  public:
    Walk(const Params& p, const Speculation& from, const Region& region, int64_t count, Streams& s,
         Ring& ring)
        : p_(p), from_(from), ring_(ring), beats_(count / BEAT), residue_(s.residue.data()),
          rows_(region.bytes), stored_(s.pruned.data()), now_(low(0)), next_(low(1)) {}

    // Walk over `beats` more beats, an even number. Without `flags`, assume that no window of 0 is
    // a zero.
    void go(bool flags, int64_t beats) { flags ? go_with<true>(beats) : go_with<false>(beats); }

    void restore(const Walk& w) {
        beat_ = w.beat_, bits_ = w.bits_, rows_ = w.rows_;
        stored_ = w.stored_, now_ = w.now_, next_ = w.next_;
    }

    const uint8_t* at() const { return rows_ + taken(); }
    const uint8_t* stored() const { return stored_; }
    int64_t bits() const { return bits_; }

  private:
    template <bool FLAGS> void go_with(int64_t beats) {
        Walk walk = *this;  // a local copy keeps the members in registers
        for (int64_t i = 0; i < beats; i += 2) {
            walk.template step<FLAGS>(walk.now_);
            walk.template step<FLAGS>(walk.next_);
        }
        restore(walk);
    }

    int64_t taken() const { return (bits_ + 15) >> 4 << 1; }  // bytes of residue read

    // Results for a beat beyond the last one are undefined.
    Needs low(int64_t beat) {
        const int64_t place = beat % (RING / BEAT);
        const uint8_t* const at = rows_ + taken();
        std::memcpy(&ring_.records[place], at, sizeof(Record));
        rows_ += beat < beats_ ? ROW * TRUNCATED : 0;
        return needs_of<TRUNCATED>(ring_, place, at);
    }

    template <bool FLAGS> void step(Needs& needs) {
        Record& record = ring_.records[beat_ % (RING / BEAT)];
        std::memcpy(residue_ + taken(), rows_ + taken(), 16);
        record.start = static_cast<uint16_t>(bits_);
        int64_t escapes = needs.escapes;
        if (FLAGS && escapes)
            escapes -=
                2 * zeros_of(p_, from_.block(BEAT * beat_) + ROW, record.low, residue_, bits_);
        bits_ += needs.bits;
        std::memcpy(stored_, rows_ + taken(), 32);
        rows_ += escapes;
        stored_ += escapes;
        needs = low(beat_ + 2);
        ++beat_;
    }

    const Params& p_;
    const Speculation& from_;
    Ring& ring_;
    const int64_t beats_;
    uint8_t* const residue_;
    int64_t beat_ = 0, bits_ = 0;
    const uint8_t* rows_;  // minus the bytes of residue
    uint8_t* stored_;
    Needs now_, next_;
};

// Low bits of 64 windows in ORDER, from the records of four beats.
class LowBytes {
  public:
    explicit LowBytes(int truncated) {
        alignas(64) uint8_t index[64] = {};
        for (int word = 0; word < 8; ++word)
            for (int place = 0; place < truncated; ++place) {
                index[8 * word + 7 - place] =
                    static_cast<uint8_t>(8 * (ORDER[word] & ~1) + ROW * place + ORDER[word] % 2);
                used_ |= uint64_t{1} << (8 * word + 7 - place);
            }
        places_ = load512(index);
    }
    __m512i of(__m512i records) const {
        return transposed(_mm512_maskz_permutexvar_epi8(used_, places_, records));
    }

  private:
    uint64_t used_ = 0;
    __m512i places_;
};

// Assemble the values of beats that the walk has passed.
class Values {
  public:
    using Found = ExactValues::Found;

    Values(const Params& p, const Speculation& from, Streams& s, const Ring& ring)
        : lows_(p.truncated),
          values_(from.log2_group, s, sizeof(Record) / 2, offsetof(Record, start) / 2),
          ring_(ring) {}

    // Write 64 values from `position` on. `bits` is at most 2^16 below the first bit of their
    // residues; `stored` is advanced.
    void put(int64_t position, int64_t bits, const uint8_t*& stored, uint16_t* out,
             Found& found) const {
        const int64_t at = position % RING;
        const Record* const record = ring_.records + at / BEAT;
        const __m512i records = load512(record);
        bits += static_cast<uint16_t>(record->start - bits);
        const __m512i window = _mm512_or_si512(load512(ring_.highs + at), lows_.of(records));
        values_.put(position, window, ~uint64_t{0}, ring_.signs[at / STEP], records, bits, stored,
                    out, found);
    }

  private:
    const LowBytes lows_;
    const ExactValues values_;
    const Ring& ring_;
};

template <int TRUNCATED>
bool decode_exact(const Params& p, const Speculation& from, const Region& region, int64_t count,
                  Streams& s, uint16_t* out) {
    Ring ring{};  // beats beyond the last one are read too
    Highs highs(p, from, ring);
    const auto prepare = [&](int64_t first) {
        for (int64_t at = first; at < std::min(first + CHUNK, count); at += STEP) highs.put(at);
    };
    prepare(0);
    Walk<TRUNCATED> walk(p, from, region, count, s, ring);
    const Values values(p, from, s, ring);
    const auto chunk = [&](int64_t first, int64_t last, bool flags) {
        Values::Found found;
        const uint8_t* stored = walk.stored();
        const int64_t bits = walk.bits();
        walk.go(flags, (last - first) / BEAT);
        for (int64_t at = first; at < last; at += STEP)
            values.put(at, bits, stored, out + at, found);
        return found;
    };
    const uint8_t* const end = region.bytes + region.size;
    bool flags = false;  // zeros are clustered
    for (int64_t first = 0; first < count; first += CHUNK) {
        prepare(first + CHUNK);
        const int64_t last = std::min(first + CHUNK, count);
        const Walk<TRUNCATED> before = walk;
        auto found = chunk(first, last, flags);
        if (found.zeros && !flags) {
            walk.restore(before);
            found = chunk(first, last, true);
        }
        if (found.broken || walk.at() > end) return false;
        flags = found.zeros;
    }
    return end - walk.at() < p.superblock;
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_exact_avx512(const Params& p, const Region& spec, const Region& ver, int64_t count,
                        Streams& s, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    if (p.lead != 1 || p.truncated == 0) return false;
    const Speculation from(p, spec, count, s.groups.data());
    if (!from.good) return false;
    constexpr decltype(&decode_exact<1>) decode[] = {
        decode_exact<1>, decode_exact<2>, decode_exact<3>, decode_exact<4>,
        decode_exact<5>, decode_exact<6>, decode_exact<7>};
    return decode[p.truncated - 1](p, from, ver, count, s, out);
}

}  // namespace cassandra::codec
