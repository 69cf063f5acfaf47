// Portable kernels: the reference of the others.
#include "codec_kernels.h"

#include <algorithm>

namespace cassandra::codec {
namespace {

// Swap bit (i, j) with bit (j, i): byte i of the result has bit i of every byte.
static inline uint64_t transpose(uint64_t x) {
    uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ull;
    return x ^ t ^ (t << 28);
}

static inline bool bit_of(const uint8_t* bitmap, int64_t i) { return bitmap[i / 8] >> i % 8 & 1; }

static inline void set_bit(uint8_t* bitmap, int64_t i, bool value) {
    bitmap[i / 8] |= static_cast<uint8_t>(value << i % 8);
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
            for (int row = 0; lows && row < p.truncated; ++row)
                planes |= uint64_t{lows[at + row * size + chunk]} << 8 * row;
            store(out + at + 8 * chunk, transpose(planes) | fill);
        }
    }
}

void block(const Params& p, const uint8_t* magnitudes, int64_t blocks, uint8_t* highs,
           uint8_t* lows) {
    const int size = p.row_bytes(), top = p.magnitude_bits() - 1;
    for (int64_t at = 0; at < blocks * p.beat; at += p.beat) {
        for (int chunk = 0; chunk < size; ++chunk) {
            const uint64_t planes = transpose(load<uint64_t>(magnitudes + at + 8 * chunk));
            for (int row = 0; row < p.high_bits(); ++row)
                highs[at + row * size + chunk] = static_cast<uint8_t>(planes >> 8 * (top - row));
            for (int row = 0; row < p.truncated; ++row)
                lows[at + row * size + chunk] = static_cast<uint8_t>(planes >> 8 * row);
        }
    }
}

int64_t ranks(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out) {
    int64_t found = 0;
    int zeros = 0;
    for (int64_t i = 0; i < bytes; ++i) {
        int at = 0;
        for (unsigned byte = codes[i]; byte; byte &= byte - 1) {
            const int place = __builtin_ctz(byte);
            const int rank = zeros + place - at;
            if (rank >= limit) return -1;
            out[found++] = static_cast<uint8_t>(rank);
            zeros = 0;
            at = place + 1;
        }
        zeros += 8 - at;
        if (zeros >= limit) return -1;
    }
    return found;
}

bool look_up(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out) {
    uint8_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
        most = std::max(most, in[i]);
        out[i] = table[in[i] & 31];
    }
    return n == 0 || most < size;
}

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
    bool good = true;
    clear(stored, n);
    for (int64_t i = 0; i < n; ++i) {
        const int exponent = groups[i / group], window = windows[i], zeros = LEADING_ZEROS[window];
        const bool ordinary = window > 0 && window < ESCAPE_WINDOW, kept = is_kept(mask, i);
        const int mantissa = (window << zeros | residues[i]) & 0x7F;
        const int number = ordinary ? (exponent - zeros) * 128 | mantissa : 0;
        set_bit(stored, i, !kept || window == ESCAPE_WINDOW || (window == 0 && !residues[i]));
        good &= !(kept && ordinary && exponent <= zeros);
        out[i] = static_cast<uint16_t>(sign_of(signs, i) | number);
    }
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
    clear(bitmap, n);
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; ++i) {
        const bool set = (!kept || kept[i]) && wanted[values[i] >> 7 & 0xFF];
        set_bit(bitmap, i, set);
        chosen += set;
    }
    return chosen;
}

void signs(const uint16_t* values, int64_t n, uint8_t* bitmap) {
    clear(bitmap, n);
    for (int64_t i = 0; i < n; ++i) set_bit(bitmap, i, values[i] >> 15);
}

void group_exponents(const Params& p, const uint16_t* values, const uint8_t* mask, int64_t n,
                     uint8_t* groups) {
    for (int64_t first = 0; first < n; first += p.group) {
        int most = 1;
        const int64_t last = std::min(first + p.group, n);
        for (int64_t i = first; i < last; ++i) {
            const int exponent = values[i] >> 7 & 0xFF;
            if (!is_kept(mask, i) || exponent == 255) continue;
            const bool subnormal = p.exact() && exponent == 0 && (values[i] & 0x7F);
            most = std::max(most, subnormal ? SUBNORMAL_FLOOR : exponent);
        }
        *groups++ = static_cast<uint8_t>(most);
    }
}

void magnitudes(const Params& p, const uint16_t* values, const uint8_t* groups, int64_t n,
                uint8_t* out) {
    const uint8_t* const table = p.exact() ? WINDOWED : ALIGNED;
    for (int64_t i = 0; i < n; ++i) {
        const int exponent = values[i] >> 7 & 0xFF, mantissa = values[i] & 0x7F;
        if (p.unary()) {
            out[i] = static_cast<uint8_t>(mantissa);
            continue;
        }
        int shift = std::clamp(groups[i / p.group] - std::max(exponent, 1), -1, SHIFT_MAX);
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
    clear(stored, n);
    for (int64_t i = 0; i < n; ++i) {
        const bool tiny = windows[i] == 0 && fields[i] == 0;
        set_bit(stored, i, !is_kept(mask, i) || tiny || windows[i] == ESCAPE_WINDOW);
    }
}

}  // namespace

const Kernels portable_kernels = {
    unblock,       block,         ranks,           look_up,       spread,   spread_bits,
    gather,        gather_bits,   gather_words,    put_words,     restore_unary,
    restore_group, restore_exact, unpack_residues, pack_residues, look_up_exponents, code,
    choose,        signs,         group_exponents, magnitudes,    residue_fields, escapes,
};

const Kernels& kernels() {
#ifdef CASSANDRA_HAVE_AVX512
    if (current_isa() >= Isa::avx512) return avx512_kernels;
#endif
    return portable_kernels;
}

const Walks& walks() {
#ifdef CASSANDRA_HAVE_AVX512
    if (current_isa() >= Isa::avx512) return avx512_walks;
#endif
    return portable_walks;
}

}  // namespace cassandra::codec
