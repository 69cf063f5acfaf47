// Kernels without vectors: the reference for the others, and the AVX2 versions with pdep and pext.
#include "codec/kernels.h"

#ifdef __BMI2__
#include "codec/bits.h"
#endif

#include <algorithm>

namespace cassandra::codec {
namespace CASSANDRA_ISA {
namespace {

static inline bool bit_of(const uint8_t* bitmap, int64_t i) { return bitmap[i / 8] >> i % 8 & 1; }

static inline void set_bit(uint8_t* bitmap, int64_t i, bool value) {
    bitmap[i / 8] |= static_cast<uint8_t>(value << i % 8);
}

// Build a bitmap by calling `has` for each of n positions, in order.
template <class Has> static inline void make_bitmap(int64_t n, uint8_t* bitmap, Has has) {
    for (int64_t first = 0; first < n; first += 8) {
        const int64_t last = std::min<int64_t>(n - first, 8);
        int byte = 0;
        for (int64_t i = 0; i < last; ++i) byte |= has(first + i) << i;
        bitmap[first / 8] = static_cast<uint8_t>(byte);
    }
}

void clear(uint8_t* bitmap, int64_t n) { std::fill(bitmap, bitmap + ceil_div(n, 8), 0); }

void unblock(const Params& p, const uint8_t* highs, const uint8_t* lows, int64_t blocks,
             uint8_t* out) {
    const int size = p.row_bytes(), top = p.magnitude_bits() - 1;
    const uint64_t fill = lows ? 0 : p.fill * 0x0101010101010101ull;
    for (int64_t at = 0; at < blocks * p.beat; at += p.beat) {
        for (int chunk = 0; chunk < size; ++chunk) {
            uint64_t planes = 0;
            for (int row = 0; row < p.high_bits(); ++row)
                planes |= uint64_t{highs[at + row * size + chunk]} << 8 * (top - row);
            for (int row = 0; lows && row < p.low_planes(); ++row)
                planes |= uint64_t{lows[at + row * size + chunk]} << 8 * (row + p.absent_bits());
            store(out + at + 8 * chunk, transposed(planes) | fill);
        }
    }
}

void block(const Params& p, const uint8_t* magnitudes, int64_t blocks, uint8_t* highs,
           uint8_t* lows) {
    const int size = p.row_bytes(), top = p.magnitude_bits() - 1;
    for (int64_t at = 0; at < blocks * p.beat; at += p.beat) {
        for (int chunk = 0; chunk < size; ++chunk) {
            const uint64_t planes = transposed(load<uint64_t>(magnitudes + at + 8 * chunk));
            for (int row = 0; row < p.high_bits(); ++row)
                highs[at + row * size + chunk] = static_cast<uint8_t>(planes >> 8 * (top - row));
            for (int row = 0; row < p.low_planes(); ++row)
                lows[at + row * size + chunk] =
                    static_cast<uint8_t>(planes >> 8 * (row + p.absent_bits()));
        }
    }
}

int64_t ranks(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out) {
    int64_t found = 0;
    int zeros = 0, most = 0;  // before this word, less than `limit`; longest of any code
    for (int64_t at = 0; at < bytes; at += 8) {
        const int size = static_cast<int>(std::min<int64_t>(bytes - at, 8)) * 8;
        int next = 0;  // place after the last one
        for (uint64_t word = load<uint64_t>(codes + at) << (64 - size) >> (64 - size); word;
             word &= word - 1) {
            const int place = __builtin_ctzll(word), rank = zeros + place - next;
            most = std::max(most, rank);
            out[found++] = static_cast<uint8_t>(rank);
            zeros = 0;
            next = place + 1;
        }
        zeros += size - next;
        if (zeros >= limit) return -1;
    }
    return most >= limit ? -1 : found;
}

bool look_up(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out) {
    uint8_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
        most = std::max(most, in[i]);
        out[i] = table[in[i] & 31];
    }
    return n == 0 || most < size;
}

#ifdef __BMI2__

// Expand the lowest set bits to whole bytes or words of ones.
static inline uint64_t byte_mask(uint64_t bits) {
    return _pdep_u64(bits, 0x0101010101010101) * 0xFF;
}
static inline uint64_t word_mask(uint64_t bits) {
    return _pdep_u64(bits, 0x0001000100010001) * 0xFFFF;
}

// Return the 8 bits from place `i` on.
static inline uint64_t byte_at(const uint8_t* bitmap, int64_t n, int64_t i) {
    return bitmap[i / 8] & lanes64(n, i);
}

void spread(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    for (int64_t i = 0; i < n; i += 8) {
        const uint64_t set = byte_at(bitmap, n, i);
        store(out + i, _pdep_u64(load<uint64_t>(dense), byte_mask(set)));
        dense += _mm_popcnt_u64(set);
    }
}

int64_t gather(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    for (int64_t i = 0; i < n; i += 8) {
        const uint64_t set = byte_at(bitmap, n, i);
        store(dense, _pext_u64(load<uint64_t>(in + i), byte_mask(set)));
        dense += _mm_popcnt_u64(set);
    }
    return dense - start;
}

// Gather four words at a time; at the end one at a time.
int64_t gather_words(const uint8_t* bitmap, int64_t n, const uint16_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint64_t set = bitmap[i / 8] >> i % 8 & 15;
        uint64_t words;
        std::memcpy(&words, in + i, sizeof words);
        store(dense, _pext_u64(words, word_mask(set)));
        dense += 2 * _mm_popcnt_u64(set);
    }
    for (; i < n; ++i) {
        store(dense, in[i]);
        dense += 2 * bit_of(bitmap, i);
    }
    return (dense - start) / 2;
}

void put_words(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint64_t set = bitmap[i / 8] >> i % 8 & 15, mask = word_mask(set);
        uint64_t words;
        std::memcpy(&words, out + i, sizeof words);
        words = (words & ~mask) | _pdep_u64(load<uint64_t>(dense), mask);
        std::memcpy(out + i, &words, sizeof words);
        dense += 2 * _mm_popcnt_u64(set);
    }
    for (; i < n; ++i) {
        if (!bit_of(bitmap, i)) continue;
        out[i] = load<uint16_t>(dense);
        dense += 2;
    }
}

#else

void spread(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        const bool set = bit_of(bitmap, i);
        out[i] = set ? *dense : 0;
        dense += set;
    }
}

void spread_bits(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    clear(out, n);
    int64_t from = 0;
    for (int64_t i = 0; i < n; ++i)
        if (bit_of(bitmap, i)) set_bit(out, i, bit_of(dense, from++));
}

int64_t gather(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    for (int64_t i = 0; i < n; ++i) {
        *dense = in[i];
        dense += bit_of(bitmap, i);
    }
    return dense - start;
}

int64_t gather_bits(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense) {
    clear(dense, n);
    int64_t to = 0;
    for (int64_t i = 0; i < n; ++i)
        if (bit_of(bitmap, i)) set_bit(dense, to++, bit_of(in, i));
    return to;
}

int64_t gather_words(const uint8_t* bitmap, int64_t n, const uint16_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    for (int64_t i = 0; i < n; ++i) {
        store(dense, in[i]);
        dense += 2 * bit_of(bitmap, i);
    }
    return (dense - start) / 2;
}

void put_words(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        if (!bit_of(bitmap, i)) continue;
        out[i] = load<uint16_t>(dense);
        dense += 2;
    }
}

#endif

static inline uint16_t sign_of(const uint8_t* signs, int64_t i) {
    return static_cast<uint16_t>(bit_of(signs, i) << 15);
}

static inline bool is_kept(const uint8_t* mask, int64_t i) { return !mask || bit_of(mask, i); }

void restore_unary(const uint8_t* magnitudes, const uint8_t* exponents, const uint8_t* signs,
                   const uint8_t* mask, int64_t n, uint16_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        const int value = sign_of(signs, i) | exponents[i] << 7 | magnitudes[i];
        out[i] = is_kept(mask, i) ? static_cast<uint16_t>(value) : 0;
    }
}

void restore_group(const uint8_t* magnitudes, const uint8_t* groups, int group,
                   const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out) {
    for (int64_t first = 0; first < n; first += group, ++groups) {
        const uint16_t* const values = VALUE + *groups * 256;
        const int64_t last = std::min(first + group, n);
        for (int64_t i = first; i < last; ++i) {
            const int value = sign_of(signs, i) | values[magnitudes[i]];
            out[i] = is_kept(mask, i) ? static_cast<uint16_t>(value) : 0;
        }
    }
}

bool restore_exact(const uint8_t* windows, const uint8_t* residues, const uint8_t* groups,
                   int group, const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out,
                   uint8_t* stored) {
    const int shift = __builtin_ctz(static_cast<unsigned>(group));
    bool good = true;
    make_bitmap(n, stored, [&](int64_t i) {
        const int exponent = groups[i >> shift], window = windows[i], zeros = LEADING_ZEROS[window];
        const bool ordinary = window > 0 && window < ESCAPE_WINDOW, kept = is_kept(mask, i);
        const int mantissa = (window << zeros | residues[i]) & 0x7F;
        const int number = ordinary ? (exponent - zeros) * 128 | mantissa : 0;
        good &= !(kept && ordinary && exponent <= zeros);
        out[i] = static_cast<uint16_t>(sign_of(signs, i) | number);
        return !kept | (window == ESCAPE_WINDOW) | (window == 0 && !residues[i]);
    });
    return good;
}

void unpack_residues(const uint8_t* windows, int64_t n, const uint8_t* bits, uint8_t* out) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int width = RESIDUE_WIDTH[windows[i]];
        const unsigned field = load<uint16_t>(bits + at / 8) >> at % 8;
        out[i] = static_cast<uint8_t>(field & ((1u << width) - 1));
        at += width;
    }
}

int64_t pack_residues(const uint8_t* windows, const uint8_t* residues, int64_t n, uint8_t* bits) {
    uint64_t word = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int width = RESIDUE_WIDTH[windows[i]];
        word |= (residues[i] & ((uint64_t{1} << width) - 1)) << at % 8;
        store(bits + at / 8, static_cast<uint16_t>(word));
        at += width;
        if (at / 8 > (at - width) / 8) word >>= 8;
    }
    store(bits + ceil_div(at, 8), uint64_t{0});
    return at;
}

void look_up_exponents(const uint16_t* values, int64_t n, const uint8_t* table, uint8_t* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = table[values[i] >> 7 & 0xFF];
}

int64_t code(const uint8_t* ranks, int64_t n, uint8_t* out) {
    CodeWriter writer(out);
    for (int64_t i = 0; i < n; ++i) writer.put_rank(ranks[i]);
    return writer.finish();
}

int64_t choose(const uint16_t* values, const uint8_t* kept, const uint8_t* wanted, int64_t n,
               uint8_t* bitmap) {
    int64_t chosen = 0;
    make_bitmap(n, bitmap, [&](int64_t i) {
        const bool set = (!kept || kept[i]) & (wanted[values[i] >> 7 & 0xFF] != 0);
        chosen += set;
        return set;
    });
    return chosen;
}

void signs(const uint16_t* values, int64_t n, uint8_t* bitmap) {
    make_bitmap(n, bitmap, [&](int64_t i) { return values[i] >> 15; });
}

void group_exponents(const Params& p, const uint16_t* values, const uint8_t* mask, int64_t n,
                     uint8_t* groups) {
    for (int64_t first = 0; first < n; first += p.group) {
        int most = 1;
        const int64_t last = std::min(first + p.group, n);
        for (int64_t i = first; i < last; ++i) {
            const int exponent = values[i] >> 7 & 0xFF;
            const bool subnormal = p.exact() & (exponent == 0) & ((values[i] & 0x7F) != 0);
            const int least = subnormal
                                  ? SUBNORMAL_FLOOR
                                  : exponent;  // no branch on the mask, which would be mispredicted
            most = std::max(most, is_kept(mask, i) & (exponent != 255) ? least : 1);
        }
        *groups++ = static_cast<uint8_t>(most);
    }
}

void magnitudes(const Params& p, const uint16_t* values, const uint8_t* groups, int64_t n,
                uint8_t* out) {
    const uint8_t* const table =
        p.exact() ? WINDOWED : ALIGNED + p.absent_bits() * ((SHIFT_MAX + 2) << 8);
    const int log2_group = __builtin_ctz(static_cast<unsigned>(p.group));
    for (int64_t i = 0; i < n; ++i) {
        const int exponent = values[i] >> 7 & 0xFF, mantissa = values[i] & 0x7F;
        if (p.unary()) {
            out[i] = static_cast<uint8_t>(mantissa);
            continue;
        }
        int shift = std::clamp(groups[i >> log2_group] - std::max(exponent, 1), -1, SHIFT_MAX);
        if (p.exact() && exponent == 255) shift = -1;
        out[i] = table[(shift + 1) << 8 | (exponent > 0) << 7 | mantissa];
    }
}

void residue_fields(const uint16_t* values, const uint8_t* windows, int64_t n, uint8_t* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = windows[i] ? values[i] & 0x7F : (values[i] & 0x7FFF) == 0;
}

void escapes(const uint8_t* windows, const uint8_t* fields, const uint8_t* mask, int64_t n,
             uint8_t* stored) {
    make_bitmap(n, stored, [&](int64_t i) {
        const bool tiny = (windows[i] == 0) & (fields[i] == 0);
        return !is_kept(mask, i) | tiny | (windows[i] == ESCAPE_WINDOW);
    });
}

}  // namespace

const Kernels codec_kernels = {
    unblock,       block,           ranks,         look_up,           spread,        spread_bits,
    gather,        gather_bits,     gather_words,  put_words,         restore_unary, restore_group,
    restore_exact, unpack_residues, pack_residues, look_up_exponents, code,          choose,
    signs,         group_exponents, magnitudes,    residue_fields,    escapes,
};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra::codec
