// Kernels for AVX-512 with VBMI, VBMI2 and GFNI, with the same results as the portable ones.
#include <algorithm>

#include "codec/avx512/fused.h"

namespace cassandra::codec::CASSANDRA_ISA {
namespace {

// Or `b` into the words of `a` selected by the mask, because _mm512_mask_or_epi16 does not exist.
static inline __m512i or_where(__m512i a, __mmask32 where, __m512i b) {
    return _mm512_mask_mov_epi16(a, where, _mm512_or_si512(a, b));
}

static inline uint32_t lanes32(int64_t n, int64_t i) {
    return n - i >= 32 ? ~0u : _bzhi_u32(~0u, static_cast<unsigned>(n - i));
}

// Lookup table of 128 bytes for indices below 128; other indices give 0.
struct Table128 {
    __m512i low, high;
    template <class Entry> explicit Table128(Entry entry) {
        alignas(64) uint8_t entries[128];
        for (int i = 0; i < 128; ++i) entries[i] = static_cast<uint8_t>(entry(i));
        low = load512(entries);
        high = load512(entries + 64);
    }
    __m512i operator()(__m512i index) const {
        const __mmask64 known = ~_mm512_movepi8_mask(index);
        return _mm512_maskz_permutex2var_epi8(known, low, index, high);
    }
};

static Table128 leading_zeros() {
    return Table128([](int i) { return LEADING_ZEROS[i]; });
}
// Build masks of the residue bits of each window.
static Table128 residue_masks() {
    return Table128([](int i) { return (1 << RESIDUE_WIDTH[i]) - 1; });
}

static inline __m512i low_words(__m512i bytes) {
    return _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes));
}
static inline __m512i high_words(__m512i bytes) {
    return _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1));
}

void unblock(const Params& p, const uint8_t* highs, const uint8_t* lows, int64_t blocks,
             uint8_t* out) {
    const int size = p.row_bytes(), top = p.magnitude_bits() - 1;
    alignas(64) uint8_t index[64] = {};
    uint64_t used = 0;
    for (int word = 0; word < 8; ++word) {
        const int start = word / size * p.beat + word % size;
        for (int place = lows ? p.absent_bits() : p.truncated; place <= top; ++place) {
            const int row = place >= p.truncated ? top - place : place - p.absent_bits();
            const int byte = start + row * size;
            index[8 * word + 7 - place] =
                static_cast<uint8_t>(place < p.truncated ? 64 + byte : byte);
            used |= uint64_t{1} << (8 * word + 7 - place);
        }
    }
    const __m512i places = load512(index);
    const __m512i fill = _mm512_set1_epi8(static_cast<char>(lows ? 0 : p.fill));
    const uint8_t* const second = lows ? lows : highs;
    for (int64_t at = 0; at < blocks * p.beat; at += 64) {
        const __m512i planes =
            _mm512_maskz_permutex2var_epi8(used, load512(highs + at), places, load512(second + at));
        _mm512_storeu_si512(out + at, _mm512_or_si512(transposed(planes), fill));
    }
}

void block(const Params& p, const uint8_t* magnitudes, int64_t blocks, uint8_t* highs,
           uint8_t* lows) {
    const int size = p.row_bytes(), top = p.magnitude_bits() - 1;
    alignas(64) uint8_t high_index[64] = {}, low_index[64] = {};
    for (int word = 0; word < 8; ++word) {
        const int start = word / size * p.beat + word % size;
        for (int row = 0; row < p.high_bits(); ++row)
            high_index[start + row * size] = static_cast<uint8_t>(8 * word + top - row);
        for (int row = 0; row < p.low_planes(); ++row)
            low_index[start + row * size] = static_cast<uint8_t>(8 * word + row + p.absent_bits());
    }
    const __m512i high_places = load512(high_index), low_places = load512(low_index);
    const __m512i reverse =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x08090A0B0C0D0E0F, 0x0001020304050607));
    for (int64_t at = 0; at < blocks * p.beat; at += 64) {
        const __m512i planes = transposed(_mm512_shuffle_epi8(load512(magnitudes + at), reverse));
        _mm512_storeu_si512(highs + at, _mm512_permutexvar_epi8(high_places, planes));
        _mm512_storeu_si512(lows + at, _mm512_permutexvar_epi8(low_places, planes));
    }
}

int64_t ranks(const uint8_t* codes, int64_t bytes, int limit, uint8_t* out) {
    const __m512i lanes = iota(), one = _mm512_set1_epi8(1);
    const __m512i before = _mm512_sub_epi8(lanes, one);
    __m512i most = _mm512_setzero_si512();
    int64_t found = 0;
    int zeros = 0;  // before this word; less than `limit`
    for (int64_t at = 0; at < bytes; at += 8) {
        const int bits = static_cast<int>(std::min<int64_t>(bytes - at, 8)) * 8;
        const uint64_t word = _bzhi_u64(load<uint64_t>(codes + at), bits);
        if (word == 0) {
            zeros += bits;
            if (zeros >= limit) return -1;
            continue;
        }
        const int count = static_cast<int>(_mm_popcnt_u64(word));
        const __m512i places = _mm512_maskz_compress_epi8(word, lanes);
        __m512i last = _mm512_permutexvar_epi8(before, places);
        last = _mm512_mask_set1_epi8(last, 1, static_cast<char>(-1 - zeros));
        const __m512i rank = _mm512_sub_epi8(_mm512_sub_epi8(places, last), one);
        most = _mm512_mask_max_epu8(most, _bzhi_u64(ALL, count), most, rank);
        _mm512_storeu_si512(out + found, rank);
        found += count;
        zeros = static_cast<int>(_lzcnt_u64(word)) - (64 - bits);
        if (zeros >= limit) return -1;
    }
    const __m512i limits = _mm512_set1_epi8(static_cast<char>(limit));
    return _mm512_cmpge_epu8_mask(most, limits) ? -1 : found;
}

bool look_up(const uint8_t* in, int64_t n, const uint8_t* table, int size, uint8_t* out) {
    const __m512i entries =
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)));
    const __m512i limit = _mm512_set1_epi8(static_cast<char>(size)), mask = _mm512_set1_epi8(31);
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i index = load512(in + i);
        bad |= _mm512_mask_cmpge_epu8_mask(lanes64(n, i), index, limit);
        _mm512_storeu_si512(out + i,
                            _mm512_permutexvar_epi8(_mm512_and_si512(index, mask), entries));
    }
    return bad == 0;
}

void spread(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    for (int64_t i = 0; i < n; i += 64) {
        const uint64_t set = word_at(bitmap, i) & lanes64(n, i);
        _mm512_storeu_si512(out + i, _mm512_maskz_expand_epi8(set, load512(dense)));
        dense += _mm_popcnt_u64(set);
    }
}

int64_t gather(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    for (int64_t i = 0; i < n; i += 64) {
        const uint64_t set = word_at(bitmap, i) & lanes64(n, i);
        _mm512_storeu_si512(dense, _mm512_maskz_compress_epi8(set, load512(in + i)));
        dense += _mm_popcnt_u64(set);
    }
    return dense - start;
}

int64_t gather_words(const uint8_t* bitmap, int64_t n, const uint16_t* in, uint8_t* dense) {
    uint8_t* const start = dense;
    for (int64_t i = 0; i < n; i += 32) {
        const uint32_t set = load<uint32_t>(bitmap + i / 8) & lanes32(n, i);
        if (!set) continue;
        const __m512i words = _mm512_maskz_loadu_epi16(lanes32(n, i), in + i);
        _mm512_storeu_si512(dense, _mm512_maskz_compress_epi16(set, words));
        dense += 2 * _mm_popcnt_u32(set);
    }
    return (dense - start) / 2;
}

void put_words(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint16_t* out) {
    for (int64_t i = 0; i < n; i += 32) {
        const uint32_t set = load<uint32_t>(bitmap + i / 8) & lanes32(n, i);
        _mm512_mask_storeu_epi16(out + i, set, _mm512_maskz_expand_epi16(set, load512(dense)));
        dense += 2 * _mm_popcnt_u32(set);
    }
}

// Store 32 values with their signs; positions that are not kept become 0, positions past the end
// stay unchanged.
static inline void put32(__m512i values, const uint8_t* signs, const uint8_t* mask, int64_t i,
                         int64_t n, uint16_t* out) {
    const __m512i minus = _mm512_set1_epi16(static_cast<short>(0x8000));
    values = or_where(values, load<uint32_t>(signs + i / 8), minus);
    if (mask) values = _mm512_maskz_mov_epi16(load<uint32_t>(mask + i / 8), values);
    if (n - i >= 32) {
        _mm512_storeu_si512(out + i, values);
    } else if (n > i) {
        _mm512_mask_storeu_epi16(out + i, lanes32(n, i), values);
    }
}

void restore_unary(const uint8_t* magnitudes, const uint8_t* exponents, const uint8_t* signs,
                   const uint8_t* mask, int64_t n, uint16_t* out) {
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i magnitude = load512(magnitudes + i), exponent = load512(exponents + i);
        const __m512i low = _mm512_slli_epi16(low_words(exponent), 7);
        const __m512i high = _mm512_slli_epi16(high_words(exponent), 7);
        put32(_mm512_or_si512(low, low_words(magnitude)), signs, mask, i, n, out);
        put32(_mm512_or_si512(high, high_words(magnitude)), signs, mask, i + 32, n, out);
    }
}

// Return value(0, E, A) of section 4.2 for 32 words; z holds the leading zeros of A.
static inline __m512i value_of(__m512i group, __m512i magnitude, __m512i zeros) {
    const __m512i mantissa =
        _mm512_and_si512(_mm512_sllv_epi16(magnitude, zeros), _mm512_set1_epi16(0x7F));
    __m512i value = _mm512_or_si512(_mm512_slli_epi16(_mm512_sub_epi16(group, zeros), 7), mantissa);
    const __mmask32 small = _mm512_cmple_epu16_mask(group, zeros);
    if (small) {
        const __m512i shift = _mm512_sub_epi16(group, _mm512_set1_epi16(1));
        value = _mm512_mask_sllv_epi16(value, small, magnitude, shift);
    }
    return _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(magnitude, magnitude), value);
}

void restore_group(const uint8_t* magnitudes, const uint8_t* groups, int group,
                   const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out) {
    const Table128 table = leading_zeros();
    const GroupBytes exponents(__builtin_ctz(static_cast<unsigned>(group)), NATURAL);
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i magnitude = load512(magnitudes + i), exponent = exponents.at(groups, i);
        const __m512i zeros = table(magnitude);
        put32(value_of(low_words(exponent), low_words(magnitude), low_words(zeros)), signs, mask, i,
              n, out);
        put32(value_of(high_words(exponent), high_words(magnitude), high_words(zeros)), signs, mask,
              i + 32, n, out);
    }
}

static inline __m512i exact_of(__m512i exponent, __m512i window, __m512i zeros, __m512i residue) {
    const __m512i whole = _mm512_or_si512(_mm512_sllv_epi16(window, zeros), residue);
    const __m512i mantissa = _mm512_and_si512(whole, _mm512_set1_epi16(0x7F));
    return _mm512_or_si512(_mm512_slli_epi16(_mm512_sub_epi16(exponent, zeros), 7), mantissa);
}

bool restore_exact(const uint8_t* windows, const uint8_t* residues, const uint8_t* groups,
                   int group, const uint8_t* signs, const uint8_t* mask, int64_t n, uint16_t* out,
                   uint8_t* stored) {
    const Table128 table = leading_zeros();
    const GroupBytes exponents(__builtin_ctz(static_cast<unsigned>(group)), NATURAL);
    const __m512i full = _mm512_set1_epi8(static_cast<char>(ESCAPE_WINDOW));
    uint64_t broken = 0;
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i window = load512(windows + i), residue = load512(residues + i);
        const __m512i exponent = exponents.at(groups, i), zeros = table(window);
        const uint64_t kept = (mask ? word_at(mask, i) : ALL) & lanes64(n, i);
        const uint64_t empty = _mm512_testn_epi8_mask(window, window);
        const uint64_t saturated = _mm512_cmpeq_epi8_mask(window, full);
        const uint64_t tiny = empty & _mm512_testn_epi8_mask(residue, residue);
        broken |= kept & ~empty & ~saturated & _mm512_cmple_epu8_mask(exponent, zeros);
        store(stored + i / 8, (saturated | tiny | ~kept) & lanes64(n, i));
        const __m512i low =
            exact_of(low_words(exponent), low_words(window), low_words(zeros), low_words(residue));
        const __m512i high = exact_of(high_words(exponent), high_words(window), high_words(zeros),
                                      high_words(residue));
        put32(_mm512_maskz_mov_epi16(static_cast<uint32_t>(~empty), low), signs, nullptr, i, n,
              out);
        put32(_mm512_maskz_mov_epi16(static_cast<uint32_t>(~empty >> 32), high), signs, nullptr,
              i + 32, n, out);
    }
    return broken == 0;
}

void unpack_residues(const uint8_t* windows, int64_t n, const uint8_t* bits, uint8_t* out) {
    const Table128 table = residue_masks();
    alignas(64) uint64_t masks[8];
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += 64) {
        _mm512_store_si512(masks,
                           _mm512_maskz_mov_epi8(lanes64(n, i), table(load512(windows + i))));
        for (int word = 0; word < 8; ++word) {  // at most 56 bits each
            const uint64_t field = load<uint64_t>(bits + at / 8) >> at % 8;
            store(out + i + 8 * word, _pdep_u64(field, masks[word]));
            at += _mm_popcnt_u64(masks[word]);
        }
    }
}

int64_t pack_residues(const uint8_t* windows, const uint8_t* residues, int64_t n, uint8_t* bits) {
    const Table128 table = residue_masks();
    alignas(64) uint64_t masks[8];
    uint64_t partial = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += 64) {
        _mm512_store_si512(masks,
                           _mm512_maskz_mov_epi8(lanes64(n, i), table(load512(windows + i))));
        for (int word = 0; word < 8; ++word) {
            const uint64_t field = _pext_u64(load<uint64_t>(residues + i + 8 * word), masks[word]);
            partial |= field << at % 8;
            store(bits + at / 8, partial);
            const int64_t next = at + _mm_popcnt_u64(masks[word]);
            partial >>= 8 * (next / 8 - at / 8);
            at = next;
        }
    }
    store(bits + ceil_div(at, 8), uint64_t{0});
    return at;
}

static inline __m512i low_bytes(__m512i first, __m512i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)),
                              _mm512_cvtepi16_epi8(second), 1);
}

// Extract eight bits of 64 values from bit `SHIFT` on, one byte each; bytes past the end are 0.
template <int SHIFT> static inline __m512i fields64(const uint16_t* values, int64_t i, int64_t n) {
    const __m512i low = _mm512_maskz_loadu_epi16(lanes32(n, i), values + i);
    const __m512i high =
        _mm512_maskz_loadu_epi16(n > i + 32 ? lanes32(n, i + 32) : 0, values + i + 32);
    return low_bytes(_mm512_srli_epi16(low, SHIFT), _mm512_srli_epi16(high, SHIFT));
}

static inline __m512i exponents64(const uint16_t* values, int64_t i, int64_t n) {
    return fields64<7>(values, i, n);
}

static inline __m512i mantissas64(const uint16_t* values, int64_t i, int64_t n) {
    return _mm512_and_si512(fields64<0>(values, i, n), _mm512_set1_epi8(0x7F));
}

// Lookup table of 256 bytes.
class Table256 {
  public:
    explicit Table256(const uint8_t* table)
        : t0_(load512(table)), t1_(load512(table + 64)), t2_(load512(table + 128)),
          t3_(load512(table + 192)) {}
    __m512i operator()(__m512i index) const {
        const __m512i small = _mm512_permutex2var_epi8(t0_, index, t1_);
        const __m512i large = _mm512_permutex2var_epi8(t2_, index, t3_);
        return _mm512_mask_mov_epi8(small, _mm512_movepi8_mask(index), large);
    }

  private:
    const __m512i t0_, t1_, t2_, t3_;
};

void look_up_exponents(const uint16_t* values, int64_t n, const uint8_t* table, uint8_t* out) {
    const Table256 entries(table);
    for (int64_t i = 0; i < n; i += 64)
        _mm512_storeu_si512(out + i, entries(exponents64(values, i, n)));
}

// Write eight codes at a time if none is longer than 8 bits: one product finds all their ends.
int64_t code(const uint8_t* ranks, int64_t n, uint8_t* out) {
    constexpr uint64_t EACH = 0x0101010101010101;
    CodeWriter writer(out);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint64_t eight = load<uint64_t>(ranks + i), ends = (eight + EACH) * EACH;
        if (__builtin_expect((eight & 0xF8 * EACH) != 0 || ends >> 56 > 56, 0)) {
            for (int k = 0; k < 8; ++k) writer.put_rank(ranks[i + k]);
            continue;
        }
        const __m512i places =
            _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<long long>(ends - EACH)));
        const __m512i codes = _mm512_sllv_epi64(_mm512_set1_epi64(1), places);
        writer.put(static_cast<uint64_t>(_mm512_reduce_or_epi64(codes)),
                   static_cast<unsigned>(ends >> 56));
    }
    for (; i < n; ++i) writer.put_rank(ranks[i]);
    return writer.finish();
}

int64_t choose(const uint16_t* values, const uint8_t* kept, const uint8_t* wanted, int64_t n,
               uint8_t* bitmap) {
    const Table256 entries(wanted);
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i found = entries(exponents64(values, i, n));
        uint64_t set = _mm512_test_epi8_mask(found, found) & lanes64(n, i);
        if (kept) {
            const __m512i flags = _mm512_maskz_loadu_epi8(lanes64(n, i), kept + i);
            set &= _mm512_test_epi8_mask(flags, flags);
        }
        store(bitmap + i / 8, set);
        chosen += _mm_popcnt_u64(set);
    }
    return chosen;
}

void signs(const uint16_t* values, int64_t n, uint8_t* bitmap) {
    for (int64_t i = 0; i < n; i += 32)
        store(bitmap + i / 8, static_cast<uint32_t>(_mm512_movepi16_mask(
                                  _mm512_maskz_loadu_epi16(lanes32(n, i), values + i))));
}

static inline uint8_t largest(__m256i bytes) {
    __m128i most = _mm_max_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    most = _mm_max_epu8(most, _mm_srli_si128(most, 8));
    most = _mm_max_epu8(most, _mm_srli_si128(most, 4));
    most = _mm_max_epu8(most, _mm_srli_si128(most, 2));
    most = _mm_max_epu8(most, _mm_srli_si128(most, 1));
    return static_cast<uint8_t>(_mm_cvtsi128_si32(most));
}

void group_exponents(const Params& p, const uint16_t* values, const uint8_t* mask, int64_t n,
                     uint8_t* groups) {
    if (p.group < 32) {
        portable::codec_kernels.group_exponents(p, values, mask, n, groups);
        return;
    }
    const __m512i floor = _mm512_set1_epi8(SUBNORMAL_FLOOR),
                  none = _mm512_set1_epi8(static_cast<char>(255));
    const int64_t size = ceil_div(n, p.group);
    std::fill(groups, groups + size, 1);
    for (int64_t i = 0; i < n; i += 64) {
        __m512i exponent = exponents64(values, i, n);
        const uint64_t kept = (mask ? word_at(mask, i) : ALL) & lanes64(n, i);
        const uint64_t finite = _mm512_cmpneq_epi8_mask(exponent, none);
        if (p.exact()) {
            const __m512i mantissa = mantissas64(values, i, n);
            const uint64_t subnormal = _mm512_testn_epi8_mask(exponent, exponent) &
                                       _mm512_test_epi8_mask(mantissa, mantissa);
            exponent = _mm512_mask_mov_epi8(exponent, subnormal, floor);
        }
        exponent = _mm512_maskz_mov_epi8(kept & finite, exponent);
        uint8_t* const first = groups + i / p.group;
        *first = std::max(*first, largest(_mm512_castsi512_si256(exponent)));
        if (i + 32 < n) {
            uint8_t* const second = groups + (i + 32) / p.group;
            *second = std::max(*second, largest(_mm512_extracti64x4_epi64(exponent, 1)));
        }
    }
}

// Return aligned significands (nearest, ties to even) or windows of 32 words.
static inline __m512i aligned(__m512i exponent, __m512i mantissa, __m512i group, bool exact) {
    const __m512i one = _mm512_set1_epi16(1), full = _mm512_set1_epi16(255);
    const __mmask32 normal = _mm512_test_epi16_mask(exponent, exponent);
    const __m512i significand = or_where(mantissa, normal, _mm512_set1_epi16(128));
    __m512i shift = _mm512_sub_epi16(group, _mm512_max_epu16(exponent, one));
    __mmask32 saturated = _mm512_movepi16_mask(shift);
    shift = _mm512_min_epi16(shift, _mm512_set1_epi16(SHIFT_MAX));
    __m512i result = _mm512_srlv_epi16(significand, shift);
    if (exact) {
        saturated |= _mm512_cmpeq_epi16_mask(exponent, full);
    } else {
        const __m512i odd = _mm512_and_si512(result, one);
        const __m512i half = _mm512_srli_epi16(_mm512_sllv_epi16(one, shift), 1);
        const __m512i bias = _mm512_sub_epi16(_mm512_add_epi16(half, odd), one);
        const __mmask32 shifted = _mm512_cmpgt_epi16_mask(shift, _mm512_setzero_si512());
        const __m512i sum = _mm512_add_epi16(significand, bias);
        result = _mm512_mask_srlv_epi16(result, shifted, sum, shift);
    }
    return _mm512_mask_mov_epi16(result, saturated, full);
}

void magnitudes(const Params& p, const uint16_t* values, const uint8_t* groups, int64_t n,
                uint8_t* out) {
    if (p.absent_bits()) return portable::codec_kernels.magnitudes(p, values, groups, n, out);
    const GroupBytes shared(p.unary() ? 5 : __builtin_ctz(static_cast<unsigned>(p.group)), NATURAL);
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i mantissa = mantissas64(values, i, n);
        if (p.unary()) {
            _mm512_storeu_si512(out + i, mantissa);
            continue;
        }
        const __m512i exponent = exponents64(values, i, n), group = shared.at(groups, i);
        const __m512i low =
            aligned(low_words(exponent), low_words(mantissa), low_words(group), p.exact());
        const __m512i high =
            aligned(high_words(exponent), high_words(mantissa), high_words(group), p.exact());
        _mm512_storeu_si512(out + i, low_bytes(low, high));
    }
}

void residue_fields(const uint16_t* values, const uint8_t* windows, int64_t n, uint8_t* out) {
    const __m512i one = _mm512_set1_epi8(1);
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i mantissa = mantissas64(values, i, n), exponent = exponents64(values, i, n);
        const __m512i window = load512(windows + i);
        const __m512i any = _mm512_or_si512(mantissa, exponent);
        const __m512i flag = _mm512_maskz_mov_epi8(_mm512_testn_epi8_mask(any, any), one);
        _mm512_storeu_si512(
            out + i, _mm512_mask_mov_epi8(flag, _mm512_test_epi8_mask(window, window), mantissa));
    }
}

void escapes(const uint8_t* windows, const uint8_t* fields, const uint8_t* mask, int64_t n,
             uint8_t* stored) {
    const __m512i full = _mm512_set1_epi8(static_cast<char>(ESCAPE_WINDOW));
    for (int64_t i = 0; i < n; i += 64) {
        const __m512i window = load512(windows + i), field = load512(fields + i);
        const uint64_t tiny =
            _mm512_testn_epi8_mask(window, window) & _mm512_testn_epi8_mask(field, field);
        const uint64_t found =
            tiny | _mm512_cmpeq_epi8_mask(window, full) | (mask ? ~word_at(mask, i) : 0);
        store(stored + i / 8, found & lanes64(n, i));
    }
}

}  // namespace

const Kernels codec_kernels = {
    unblock,       block,           ranks,         look_up,           spread,        spread_bits,
    gather,        gather_bits,     gather_words,  put_words,         restore_unary, restore_group,
    restore_exact, unpack_residues, pack_residues, look_up_exponents, code,          choose,
    signs,         group_exponents, magnitudes,    residue_fields,    escapes,
};

}  // namespace cassandra::codec::CASSANDRA_ISA
