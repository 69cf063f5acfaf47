// Targets of scheme exact with a mask, for beats of 16 values and lead 1.
//
// The walk over speculation data collects blocks of kept values. The walk over verification data
// then needs the widths of residues to find the rows. They are the leading zeros of windows, which
// it counts in planes, up to the lane of a block at which a beat ends. Values are assembled at the
// end, as without a mask.
#include "codec/avx512/exact.h"
#include "codec/avx512/masked.h"
#include "codec/avx512/windows.h"

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

constexpr int LANES = 0xFFFF, BLOCK = 16;  // bytes

// Prepare the high bits of each block, 16 bytes each. Before the first block stands a block whose
// values have no residues and are not escapes. `s.spread` gets the planes of windows from 0 on,
// each with a one where it or a higher plane has one; `s.spread_more` gets, first, the lanes with a
// zero among their high bits.
void prepare(const Params& p, int64_t kept, Streams& s) {
    alignas(16) uint8_t index[16], present[16];
    for (int place = 0; place < 8; ++place)
        for (int byte = 0; byte < ROW; ++byte) {
            const bool high = place >= p.truncated;
            index[ROW * place + byte] =
                static_cast<uint8_t>(high ? ROW * (8 - place) + byte : 0x80);
            present[ROW * place + byte] = high ? 0xFF : 0;
        }
    const __m512i rows = _mm512_broadcast_i32x4(load128(index)),
                  is_high = _mm512_broadcast_i32x4(load128(present));
    const auto down = [](__m512i planes) {
        planes = _mm512_or_si512(planes, _mm512_bsrli_epi128(planes, ROW));
        planes = _mm512_or_si512(planes, _mm512_bsrli_epi128(planes, 2 * ROW));
        return _mm512_or_si512(planes, _mm512_bsrli_epi128(planes, 4 * ROW));
    };
    std::memset(s.spread.data(), 0xFF, BLOCK);
    std::memset(s.spread_more.data(), 0xFF, BLOCK);
    for (int64_t at = 0; at < kept; at += STEP) {
        const __m512i planes = _mm512_shuffle_epi8(load512(s.highs.data() + at), rows);
        _mm512_storeu_si512(s.spread.data() + BLOCK + at, down(planes));
        _mm512_storeu_si512(s.spread_more.data() + BLOCK + at,
                            down(_mm512_andnot_si512(planes, is_high)));
    }
}

// Masks of the first n lanes in four planes.
struct LaneMasks {
    uint64_t of[BEAT + 1];
    constexpr LaneMasks() : of() {
        for (int n = 0; n <= BEAT; ++n) of[n] = ((uint64_t{1} << n) - 1) * 0x0001000100010001;
    }
};
constexpr LaneMasks FIRST;

// Planes of a block, each or'ed with those above it: 7 to 4 and 3 to 0, the highest on top. Also
// the lanes of windows of 0 or 255.
struct Block {
    uint64_t upper, lower, special;

    // Spread ones to the planes below; zeros likewise.
    static uint64_t some(uint64_t planes) {
        planes |= planes >> 16;
        return planes | planes >> 32;
    }
    static uint64_t all(uint64_t planes) {
        planes &= planes >> 32;
        return planes & planes >> 16;
    }

    template <int TRUNCATED>
    static Block of(const uint8_t* high, const uint8_t* zeros, const uint8_t* low) {
        constexpr int LOWER = TRUNCATED < 4 ? TRUNCATED : 4, UPPER = TRUNCATED - LOWER;
        constexpr uint64_t LOWER_PLANES = ~uint64_t{0} >> (64 - 16 * LOWER);
        uint64_t lower = load<uint64_t>(high), upper = load<uint64_t>(high + 8);
        const uint64_t rows = load<uint64_t>(low) & LOWER_PLANES;
        uint64_t full = all(rows | ~LOWER_PLANES) & ~uint64_t{load<uint16_t>(zeros)};
        if constexpr (UPPER > 0) {
            constexpr uint64_t UPPER_PLANES = ~uint64_t{0} >> (64 - 16 * UPPER);
            const uint64_t more = load<uint64_t>(low + 8) & UPPER_PLANES, planes = some(more);
            upper |= planes;
            lower |= (planes & LANES) * 0x0001000100010001;
            full &= all(more | ~UPPER_PLANES);
        }
        lower |= some(rows);
        return {upper, lower, (full | ~lower) & LANES};
    }

    // Return the bits of residues of the first `lanes` values if windows of 0 had eight bits, and
    // in the upper half the number of special windows.
    uint64_t needs(int64_t lanes) const {
        const uint64_t first = FIRST.of[lanes];
        const int64_t bits = 8 * lanes - ones(lower & first) - ones(upper & first);
        return static_cast<uint64_t>(bits + (ones(special & first) << 32));
    }
};

struct Special {
    int64_t empty, escapes;
};

// Examine `n` kept values from `first` on, whose residues begin at `bit`.
template <int TRUNCATED>
__attribute__((noinline)) Special count_special(const Planes& planes, Streams& s, int64_t first,
                                                int64_t n, int64_t bit) {
    alignas(64) uint8_t windows[STEP];
    const int64_t block = first / BEAT;
    const __m512i high = load512(s.highs.data() + BLOCK * block),
                  low = load512(s.lows.data() + ROW * TRUNCATED * block);
    _mm512_store_si512(windows, planes.bytes(high, low));
    const uint8_t* const some = windows + first % BEAT;
    const __m128i window = load128(some);
    const int64_t empty = ones(_mm_testn_epi8_mask(window, window) & FIRST.of[n] & LANES);
    return {empty, escapes_of<BEAT>(some, static_cast<int>(n), s.residue.data(), bit)};
}

// Copy the rows of low, residue and pruned to separate buffers.
template <int TRUNCATED> class ExactWalk {
  public:
    ExactWalk(const Params& p, const Region& region, int64_t beats, Streams& s)
        : planes_(p, true, SIZE, NATURAL), s_(s), beats_(beats), superblock_(p.superblock),
          end_(region.bytes + region.size),
          masks_(reinterpret_cast<const uint16_t*>(s.mask.data())), highs_(s.spread.data()),
          zeros_(s.spread_more.data()), lows_(s.lows.data()), residue_(s.residue.data()),
          starts_(s.starts.data()), at_(region.bytes), low_(region.bytes),
          pruned_(s.pruned.data()) {}

    // Return false if the region is too short or too long.
    bool go() {
        const uint64_t first = take_low(0);
        uint64_t next = take_low(1);
        take_residue(0, first);
        for (int64_t beat = 0; beat < beats_ - 2; ++beat) {
            take_pruned(beat);
            const uint64_t needs = next;
            next = take_low(beat + 2);
            take_residue(beat + 1, needs);
            if (at_ > end_) return false;
        }
        take_pruned(beats_ - 2);
        take_residue(beats_ - 1, next);
        take_pruned(beats_ - 1);
        return at_ <= end_ && end_ - at_ < superblock_;
    }

  private:
    static constexpr int64_t SIZE = ROW * TRUNCATED;

    static int64_t bytes_of(int64_t bits) { return (bits + 15) >> 4 << 1; }

    void take_pruned(int64_t beat) {
        const int64_t size = 2 * (BEAT - ones(masks_[beat]) + escapes_);
        std::memcpy(pruned_, at_, 2 * BEAT);
        pruned_ += size;
        at_ += size;
    }

    // Read the beat's rows of low; return its needs for residues (see Block).
    uint64_t take_low(int64_t beat) {
        const int64_t kept = ones(masks_[beat]), taken = if_less(available_, kept);
        before_ += whole_ & static_cast<uint64_t>(taken);
        std::memcpy(lows_ + SIZE * blocks_, at_, 16);
        blocks_ -= taken;
        low_ += (at_ - low_) & taken;
        at_ += SIZE & taken;
        available_ += (BEAT & taken) - kept;
        const Block block =
            Block::of<TRUNCATED>(highs_ + BLOCK * blocks_, zeros_ + BLOCK * blocks_, low_);
        const uint64_t had = upto_;
        whole_ = block.needs(BEAT);
        upto_ = before_ + block.needs(BEAT - available_);
        return upto_ - had;
    }

    void take_residue(int64_t beat, uint64_t needs) {
        const int64_t had = bytes_of(bits_);
        int64_t bits = static_cast<int32_t>(needs);
        std::memcpy(residue_ + had, at_, 16);
        starts_[beat] = static_cast<int32_t>(bits_);
        escapes_ = 0;
        if (__builtin_expect(needs >> 32 != 0, 0)) {
            const auto special =
                count_special<TRUNCATED>(planes_, s_, first(beat), ones(masks_[beat]), bits_);
            bits -= 7 * special.empty;
            escapes_ = special.escapes;
        }
        bits_ += bits;
        at_ += bytes_of(bits_) - had;
    }

    // Return the first value of a beat after the next beat's low bits have been read.
    int64_t first(int64_t beat) const {
        const int64_t next = beat + 1 < beats_ ? ones(masks_[beat + 1]) : 0;
        return BEAT * blocks_ - available_ - next - ones(masks_[beat]);
    }

    const Planes planes_;
    Streams& s_;
    const int64_t beats_, superblock_;
    const uint8_t* const end_;
    const uint16_t* const masks_;
    const uint8_t *const highs_, *const zeros_;
    uint8_t *const lows_, *const residue_;
    int32_t* const starts_;
    const uint8_t *at_, *low_;
    uint8_t* pruned_;
    int64_t available_ = 0, blocks_ = 0, escapes_ = 0, bits_ = 0;
    uint64_t whole_ = 0, before_ = 0,
             upto_ = 0;  // see Block: of this block, of those before it, of all beats
};

// Return false for an invalid group exponent or window.
bool put_exact(const Params& p, int64_t count, Streams& s, uint16_t* out) {
    const ExactValues values(__builtin_ctz(static_cast<unsigned>(p.group)), s, 2, 0);
    const Spread<true> spread(s.mask.data(), nullptr);
    const uint8_t* stored = s.pruned.data();
    ExactValues::Found found;
    int64_t from = 0;
    for (int64_t at = 0; at < count; at += STEP, out += STEP) {
        const uint64_t mask = spread.mask(at);
        const int32_t* const starts = s.starts.data() + at / BEAT;
        const __m512i places =
            _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(starts)));
        const uint64_t minus = _pdep_u64(bits_from(s.signs.data(), from), mask);
        values.put(at, spread.bytes(mask, s.magnitudes.data() + from), out_of_order(mask), minus,
                   places, *starts, stored, out, found);
        from += ones(mask);
    }
    return found.broken == 0 && legal_groups(p, s.groups.data(), count);
}

template <int TRUNCATED>
bool decode_exact_masked(const Params& p, const Region& ver, int64_t count, int64_t kept,
                         Streams& s, uint16_t* out) {
    prepare(p, kept, s);
    ExactWalk<TRUNCATED> walk(p, ver, count / BEAT, s);
    if (!walk.go()) return false;
    read_blocks(p, s.lows.data(), kept, s);
    return put_exact(p, count, s, out);
}

}  // namespace
}  // namespace CASSANDRA_ISA

bool fused_exact_masked_avx512(const Params& p, const Region& spec, const Region& ver,
                               int64_t count, Streams& s, uint16_t* out) {
    using namespace CASSANDRA_ISA;
    if (p.beat != BEAT || count % STEP || p.lead != 1 || p.truncated == 0) return false;
    HighWalk<false, true> walk(p, spec, s);
    if (!walk.go(count / BEAT)) return false;
    constexpr decltype(&decode_exact_masked<1>) decode[] = {
        decode_exact_masked<1>, decode_exact_masked<2>, decode_exact_masked<3>,
        decode_exact_masked<4>, decode_exact_masked<5>, decode_exact_masked<6>,
        decode_exact_masked<7>};
    return decode[p.truncated - 1](p, ver, count, walk.kept(), s, out);
}

}  // namespace cassandra::codec
