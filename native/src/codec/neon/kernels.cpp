// Kernels of decoding for 64-bit Arm; the others are the portable ones.
#include "codec/neon/lanes.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

void unblock(const Params& p, const uint8_t* highs, const uint8_t* lows, int64_t blocks,
             uint8_t* out) {
    const int top = p.magnitude_bits() - 1;
    Planes high, low;
    for (int row = 0; row < p.high_bits(); ++row) high.take(p, top - row, row);
    for (int row = 0; lows && row < p.low_planes(); ++row) low.take(p, row + p.absent_bits(), row);
    const uint8x16_t fill = vdupq_n_u8(lows ? 0 : static_cast<uint8_t>(p.fill));
    const uint8_t* const second = lows ? lows : highs;
    for (int64_t at = 0; at < blocks * p.beat; at += 32)
        for (int half = 0; half < 2; ++half) {
            const uint8x16_t planes =
                low.at(second + at, half, high.at(highs + at, half, vdupq_n_u8(0)));
            vst1q_u8(out + at + 16 * half, vorrq_u8(transposed(planes), fill));
        }
}

bool look_up(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out) {
    const uint8x16x2_t entries = vld1q_u8_x2(table);
    uint8x16_t most = vdupq_n_u8(0);
    for (int64_t i = 0; i < n; i += 16) {
        const uint8x16_t index = vld1q_u8(in + i);
        most = vmaxq_u8(most, vandq_u8(index, lanes_below(n - i)));
        vst1q_u8(out + i, vqtbl2q_u8(entries, vandq_u8(index, vdupq_n_u8(31))));
    }
    return n == 0 || vmaxvq_u8(most) < size;
}

// For each byte of a bitmap: the number of ones, and for each bit the number of ones below it, or
// 255 if the bit is a zero.
struct Spreading {
    uint8_t rank[256][8], ones[256];
};

constexpr Spreading make_spreading() {
    Spreading all{};
    for (int bits = 0; bits < 256; ++bits)
        for (int i = 0; i < 8; ++i) {
            const bool set = bits >> i & 1;
            all.rank[bits][i] = set ? all.ones[bits] : 255;
            all.ones[bits] = static_cast<uint8_t>(all.ones[bits] + set);
        }
    return all;
}

constexpr Spreading SPREADING = make_spreading();

// Call each(i, bits, place in the dense stream) for each byte of a bitmap.
template <class Each> inline void for_bytes(const uint8_t* bitmap, int64_t n, Each each) {
    int64_t from = 0;
    for (int64_t i = 0; i < n; i += 8) {
        const unsigned bits = n - i < 8 ? bitmap[i / 8] & ((1u << (n - i)) - 1) : bitmap[i / 8];
        each(i, bits, from);
        from += SPREADING.ones[bits];
    }
}

void spread(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    for_bytes(bitmap, n, [=](int64_t i, unsigned bits, int64_t from) {
        vst1_u8(out + i, vtbl1_u8(vld1_u8(dense + from), vld1_u8(SPREADING.rank[bits])));
    });
}

void spread_bits(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    const uint8x8_t places = vget_low_u8(PLACES);
    for_bytes(bitmap, n, [=](int64_t i, unsigned bits, int64_t from) {
        const auto next = static_cast<uint8_t>(load<uint16_t>(dense + from / 8) >> from % 8);
        const uint8x8_t ones = vtst_u8(vdup_n_u8(next), places);
        const uint8x8_t spread = vtbl1_u8(ones, vld1_u8(SPREADING.rank[bits]));
        out[i / 8] = vaddv_u8(vand_u8(spread, places));
    });
}

void put_words(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out) {
    for_bytes(bitmap, n, [=](int64_t i, unsigned bits, int64_t from) mutable {
        if (!bits) return;
        if (n - i < 8) {
            for (int64_t k = i; k < n; ++k)
                if (bits >> (k - i) & 1) out[k] = load<uint16_t>(dense + 2 * from++);
            return;
        }
        const uint8x8_t first =
            vadd_u8(vld1_u8(SPREADING.rank[bits]), vld1_u8(SPREADING.rank[bits]));
        const uint8x8x2_t both = vzip_u8(first, vorr_u8(first, vdup_n_u8(1)));
        const uint8x16_t index = vcombine_u8(both.val[0], both.val[1]);
        const uint8x16_t words = vld1q_u8(dense + 2 * from);
        uint8_t* const place = reinterpret_cast<uint8_t*>(out + i);
        vst1q_u8(place, vqtbx1q_u8(vld1q_u8(place), words, index));
    });
}

// Store up to 16 values of exponents, mantissas and bits of signs; those that `mask` (may be null)
// does not keep become 0.
inline void put16(uint8x16_t exponents, uint8x16_t mantissas, const uint8_t* signs,
                  const uint8_t* mask, int64_t i, int64_t n, uint16_t* out) {
    uint8x16x2_t halves = {vsliq_n_u8(mantissas, exponents, 7),
                           vsriq_n_u8(expanded(signs + i / 8), exponents, 1)};
    if (mask)
        for (uint8x16_t& half : halves.val) half = vandq_u8(half, expanded(mask + i / 8));
    if (n - i >= 16) return vst2q_u8(reinterpret_cast<uint8_t*>(out + i), halves);
    uint16_t values[16];
    vst2q_u8(reinterpret_cast<uint8_t*>(values), halves);
    std::memcpy(out + i, values, static_cast<size_t>(2 * (n - i)));
}

// Return the exponents of the groups of 16 values.
inline uint8x16_t exponents_at(const uint8_t* groups, int shift, int64_t i) {
    return vcombine_u8(vld1_dup_u8(groups + (i >> shift)),
                       vld1_dup_u8(groups + ((i + 8) >> shift)));
}

void restore_unary(const uint8_t* magnitudes, const uint8_t* exponents, const uint8_t* signs,
                   const uint8_t* mask, int64_t n, uint16_t* out) {
    for (int64_t i = 0; i < n; i += 16)
        put16(vld1q_u8(exponents + i), vld1q_u8(magnitudes + i), signs, mask, i, n, out);
}

// Numbers are value(0, E, A) of section 4.2: A is shifted left until its first one is the hidden
// bit, or by E - 1, which makes a subnormal.
void restore_group(const uint8_t* magnitudes, const uint8_t* groups, int group,
                   const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out) {
    const int shift = __builtin_ctz(static_cast<unsigned>(group));
    for (int64_t i = 0; i < n; i += 16) {
        const uint8x16_t magnitude = vld1q_u8(magnitudes + i);
        const uint8x16_t most = vsubq_u8(exponents_at(groups, shift, i), vdupq_n_u8(1));
        const uint8x16_t left = vminq_u8(vclzq_u8(magnitude), most);
        const uint8x16_t shifted = vshlq_u8(magnitude, vreinterpretq_s8_u8(left));
        const uint8x16_t exponent = vsraq_n_u8(vsubq_u8(most, left), shifted, 7);
        put16(vandq_u8(exponent, vtstq_u8(magnitude, magnitude)), shifted, signs, mask, i, n, out);
    }
}

bool restore_exact(const uint8_t* windows, const uint8_t* residues, const uint8_t* groups,
                   int group, const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out,
                   uint8_t* stored) {
    const int shift = __builtin_ctz(static_cast<unsigned>(group));
    uint8x16_t bad = vdupq_n_u8(0);
    for (int64_t i = 0; i < n; i += 16) {
        const uint8x16_t window = vld1q_u8(windows + i), residue = vld1q_u8(residues + i);
        const uint8x16_t exponent = exponents_at(groups, shift, i), zeros = vclzq_u8(window);
        const uint8x16_t inside = lanes_below(n - i);
        const uint8x16_t kept = mask ? vandq_u8(inside, expanded(mask + i / 8)) : inside;
        const uint8x16_t escape = vdupq_n_u8(ESCAPE_WINDOW);
        const uint8x16_t ordinary = vandq_u8(vtstq_u8(window, window), vcltq_u8(window, escape));
        bad = vorrq_u8(bad, vandq_u8(vandq_u8(ordinary, kept), vcleq_u8(exponent, zeros)));
        const uint8x16_t tiny = vceqzq_u8(vorrq_u8(window, residue));
        const uint8x16_t found = vornq_u8(vorrq_u8(tiny, vceqq_u8(window, escape)), kept);
        store(stored + i / 8, collected(vandq_u8(found, inside)));
        const uint8x16_t mantissa = vorrq_u8(vshlq_u8(window, vreinterpretq_s8_u8(zeros)), residue);
        put16(vandq_u8(vsubq_u8(exponent, zeros), ordinary), vandq_u8(mantissa, ordinary), signs,
              nullptr, i, n, out);
    }
    return !any(bad);
}

// Add to each lane the lanes below.
inline uint8x16_t running_sums(uint8x16_t a) {
    const uint8x16_t zero = vdupq_n_u8(0);
    a = vaddq_u8(a, vextq_u8(zero, a, 15));
    a = vaddq_u8(a, vextq_u8(zero, a, 14));
    a = vaddq_u8(a, vextq_u8(zero, a, 12));
    return vaddq_u8(a, vextq_u8(zero, a, 8));
}

// The residues of 16 windows have at most 112 bits: they lie in 16 bytes.
void unpack_residues(const uint8_t* windows, int64_t n, const uint8_t* bits, uint8_t* out) {
    const uint8x16_t one = vdupq_n_u8(1), eight = vdupq_n_u8(8);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const uint8x16_t width = residue_widths(vld1q_u8(windows + i)), ends = running_sums(width);
        const uint8x16_t starts =
            vaddq_u8(vsubq_u8(ends, width), vdupq_n_u8(static_cast<uint8_t>(at % 8)));
        const uint8x16_t octets = vld1q_u8(bits + at / 8), place = vshrq_n_u8(starts, 3);
        const int8x16_t right =
            vreinterpretq_s8_u8(vsubq_u8(vdupq_n_u8(0), vandq_u8(starts, vdupq_n_u8(7))));
        const uint8x16_t low = vshlq_u8(vqtbl1q_u8(octets, place), right);
        const uint8x16_t high = vshlq_u8(vqtbl1q_u8(octets, vaddq_u8(place, one)),
                                         vaddq_s8(right, vreinterpretq_s8_u8(eight)));
        const uint8x16_t most = vsubq_u8(vshlq_u8(one, vreinterpretq_s8_u8(width)), one);
        vst1q_u8(out + i, vandq_u8(vorrq_u8(low, high), most));
        at += vgetq_lane_u8(ends, 15);
    }
}

Kernels with_vectors(Kernels all) {
    all.unblock = unblock;
    all.look_up = look_up;
    all.spread = spread;
    all.spread_bits = spread_bits;
    all.put_words = put_words;
    all.restore_unary = restore_unary;
    all.restore_group = restore_group;
    all.restore_exact = restore_exact;
    all.unpack_residues = unpack_residues;
    return all;
}

}  // namespace

const Kernels codec_kernels = with_vectors(portable::codec_kernels);

}  // namespace cassandra::codec::CASSANDRA_ISA
