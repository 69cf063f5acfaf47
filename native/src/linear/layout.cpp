#include "linear/layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/guard.h"
#include "common/pool.h"

namespace cassandra {
namespace {

constexpr int kPlaces = 15;            // entries of an exponent table; place 15 is a zero
constexpr double kMostEscapes = 0.01;  // maximum fraction of escapes at which the form pays

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Return the BF16 pattern of integer * 2^power, which must be representable.
uint16_t pattern_of(int integer, int power, bool negative) {
    const uint16_t sign = negative ? 0x8000 : 0;
    if (integer == 0) return sign;
    const int top = 31 - __builtin_clz(static_cast<unsigned>(integer));
    const int exponent = top + power + 127;
    if (exponent >= 1) {
        const int mantissa = top <= 7 ? integer << (7 - top) : integer >> (top - 7);
        return static_cast<uint16_t>(sign | exponent << 7 | (mantissa & 0x7F));
    }
    return static_cast<uint16_t>(sign | integer << (power + 133));
}

// -- words --

bool is_table_form(Form form) { return form == Form::packed12 || form == Form::packed8; }

bool is_zero(uint16_t pattern) { return (pattern & 0x7FFF) == 0; }

// Return the 15 most frequent exponents (packed8: with one fill) of nonzero values.
std::vector<uint16_t> choose_table(const uint16_t* values, int64_t count, Form form) {
    std::vector<int64_t> seen(1 << 15);
    const uint16_t mask = form == Form::packed8 ? 0x7F8F : 0x7F80;
    for (int64_t i = 0; i < count; ++i)
        if (!is_zero(values[i])) ++seen[values[i] & mask];
    std::vector<int> order(seen.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return seen[a] > seen[b]; });
    std::vector<uint16_t> table(32);
    for (int i = 0; i < kPlaces; ++i)
        if (seen[order[i]]) table[i] = table[i + 16] = static_cast<uint16_t>(order[i]);
    return table;
}

// Return the place of each pattern (without its sign) in a table.
std::vector<uint8_t> places_of(const std::vector<uint16_t>& table, Form form) {
    const uint16_t mask = form == Form::packed8 ? 0x7F8F : 0x7F80;
    std::vector<uint8_t> places(1 << 15, kPlaces);
    for (int i = kPlaces; i-- > 0;)
        if (table[i])
            for (int pattern = 0; pattern < 1 << 15; ++pattern)
                if ((pattern & mask) == table[i]) places[pattern] = static_cast<uint8_t>(i);
    return places;
}

void put_word(uint8_t* at, int place, uint16_t bits) {
    uint16_t word;
    std::memcpy(&word, at + 2 * place, 2);
    word = static_cast<uint16_t>(word | bits);
    std::memcpy(at + 2 * place, &word, 2);
}

uint16_t get_word(const uint8_t* at, int place) {
    uint16_t word;
    std::memcpy(&word, at + 2 * place, 2);
    return word;
}

uint16_t swapped(uint16_t word) { return static_cast<uint16_t>(word << 8 | word >> 8); }

// Feature k of a lane is word `slot` of chain `chain` in its block of 8 features.
struct WordPlace {
    size_t block;
    int chain, slot;

    WordPlace(int64_t k, int lane)
        : block(static_cast<size_t>(k / 8)), chain(static_cast<int>(k % 8 / 2)),
          slot(2 * lane + static_cast<int>(k % 2)) {}
};

void put_value(const LinearLayout& layout, uint8_t* tile, WordPlace at, uint16_t value, int place) {
    if (layout.form == Form::packed12) {
        uint8_t* block = tile + 192 * at.block;
        const uint16_t own = value & 0x807F;
        put_word(block + 64 * (at.chain / 2), at.slot, at.chain % 2 ? swapped(own) : own);
        put_word(block + 128, at.slot, static_cast<uint16_t>(place << (4 * at.chain)));
    } else {
        const uint16_t own = static_cast<uint16_t>((value & 0x8070) | place);
        put_word(tile + 128 * at.block + 64 * (at.chain / 2), at.slot,
                 at.chain % 2 ? swapped(own) : own);
    }
}

uint16_t get_value(const LinearLayout& layout, const uint8_t* tile, WordPlace at) {
    if (layout.form == Form::bf16) return get_word(tile + 256 * at.block + 64 * at.chain, at.slot);
    const bool wide = layout.form == Form::packed12;
    const uint8_t* block = tile + (wide ? 192 : 128) * at.block;
    uint16_t word = get_word(block + 64 * (at.chain / 2), at.slot);
    if (at.chain % 2) word = swapped(word);
    if (!wide) return static_cast<uint16_t>((word & 0x8070) | layout.table[word & 15]);
    const int place = get_word(block + 128, at.slot) >> (4 * at.chain) & 15;
    return static_cast<uint16_t>((word & 0x807F) | layout.table[place]);
}

void pack_words(const LinearLayout& layout, const uint16_t* values, int lanes, uint8_t* tile,
                std::vector<Escape>& escapes) {
    const size_t before = escapes.size();
    for (int lane = 0; lane < lanes; ++lane) {
        for (int64_t k = 0; k < layout.features; ++k) {
            uint16_t value = values[lane * layout.features + k];
            const int place = layout.places[value & 0x7FFF];
            if (place == kPlaces && !is_zero(value)) {
                escapes.push_back({k, lane, to_float(value)});
                value = 0;
            }
            put_value(layout, tile, WordPlace(k, lane), value, place);
        }
    }
    // Padding features of the last block: place 0 would be a value, even if multiplied by zero.
    for (int lane = 0; lane < kTile; ++lane)
        for (int64_t k = lane < lanes ? layout.features : 0; k < layout.stored_features(); ++k)
            put_value(layout, tile, WordPlace(k, lane), 0, kPlaces);
    std::stable_sort(escapes.begin() + static_cast<std::ptrdiff_t>(before), escapes.end(),
                     [](const Escape& a, const Escape& b) { return a.feature < b.feature; });
}

// -- codes --

int magnitude_bits(const LinearLayout& layout) { return layout.form == Form::draft5 ? 4 : 3; }

// Return the power of the lowest or of the leading one of a finite value other than 0.
int power_of_one(uint16_t pattern, bool leading) {
    const int exponent = pattern >> 7 & 0xFF, mantissa = pattern & 0x7F;
    const auto integer = static_cast<unsigned>(exponent ? 128 | mantissa : mantissa);
    const int place = leading ? 31 - __builtin_clz(integer) : __builtin_ctz(integer);
    return std::max(exponent, 1) - 134 + place;
}

// Find the power of the unit of a group's values; return false if none fits. Odd multiples of a
// unit all have their lowest one at it.
bool find_unit(const LinearLayout& layout, const uint16_t* values, int64_t count, int& unit) {
    int most = 0;  // magnitudes are ordered as their patterns
    for (int64_t i = 0; i < count; ++i) most = std::max(most, values[i] & 0x7FFF);
    if (layout.odd && is_zero(values[0])) return false;
    const int bits = layout.form == Form::mx9 ? 8 : magnitude_bits(layout);
    unit = layout.odd ? power_of_one(values[0], false)
           : most     ? power_of_one(static_cast<uint16_t>(most), true) + 1 - bits
                      : 0;
    return most < 0x7F80;
}

constexpr int kMostGroup = 64;
using Codes = std::array<uint16_t, kMostGroup>;

// Find the codes of a group's finite values, or return false. In mx9, a magnitude and (bit 8) its
// sign.
bool find_codes(const LinearLayout& layout, const uint16_t* values, int64_t count, int unit,
                Codes& codes) {
    const bool magnitudes = layout.form == Form::mx9;
    const int half = 1 << magnitude_bits(layout), step = layout.odd ? 1 : 0;  // half: 16 or 8
    const int most = magnitudes ? 255 : (half << step) - 1, limit = 512;
    const double scale = std::ldexp(1.0, -unit);  // doubles neither round nor overflow here
    int wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double number = to_float(values[i]) * scale;
        const double near = std::min(std::max(number, -1.0 * limit), 1.0 * limit);
        const int integer = static_cast<int>(near);
        const int size = std::abs(integer);
        wrong |= (integer != near) | (size > most) | (~integer & step);
        const int code = magnitudes ? size | (values[i] & 0x8000) >> 7 : (integer + most) >> step;
        codes[static_cast<size_t>(i)] = static_cast<uint16_t>(code);
    }
    return !wrong;
}

// Return the power of two between a group's unit and the unit of a kernel's sums.
int unit_shift(const LinearLayout& layout) {
    if (layout.form == Form::mx9) return 0;
    return (layout.odd ? 1 : 0) - (layout.form == Form::draft5 ? 3 : 4);
}

// A run of bits of a code: `mask << from` of it lies at bit `at` of a byte.
struct Field {
    int64_t byte;
    int at, mask, from;
};

// Return the bit fields of the code of feature `k` of a lane; in mx9, a magnitude and (bit 8) its
// sign.
std::array<Field, 2> fields_of(const LinearLayout& layout, int64_t k, int lane) {
    const int64_t inside = k % 32, octet = 4 * lane + k % 4, pair = inside / 8;
    if (layout.form == Form::mx9) {
        const int64_t block = 576 * (k / 32), both = inside / 2, word = 2 * lane + k % 2;
        return {{{block + 64 * (both / 2) + 2 * word + both % 2, 0, 255, 0},
                 {block + 512 + 4 * both + word / 8, static_cast<int>(word % 8), 1, 8}}};
    }
    const bool five = layout.form == Form::draft5, odd = inside / 4 % 2 != 0;
    const int64_t block = (five ? 320 : 256) * (k / 32), place = (odd ? 3 : 7) - pair;
    const Field nibble{block + 64 * pair + octet, odd ? 4 : 0, 15, five && odd ? 1 : 0};
    if (!five) return {{nibble, {nibble.byte, 0, 0, 0}}};
    return {{nibble, {block + 256 + octet, static_cast<int>(place), 1, odd ? 0 : 4}}};
}

uint32_t four(const uint16_t* codes) {
    return codes[0] | static_cast<uint32_t>(codes[1]) << 8 | static_cast<uint32_t>(codes[2]) << 16 |
           static_cast<uint32_t>(codes[3]) << 24;
}

// Write a lane's codes of a block of 32 features as fields_of has them, four octets at a time.
void pack_block(const LinearLayout& layout, const uint16_t* codes, int lane, uint8_t* block) {
    constexpr uint32_t kNibbles = 0x0F0F0F0F, kOnes = 0x01010101;
    const int drop = layout.form == Form::draft5 ? 1 : 0;
    uint32_t more = 0;
    for (int pair = 0; pair < 4; ++pair) {
        const uint32_t even = four(codes + 8 * pair), odd = four(codes + 8 * pair + 4);
        const uint32_t nibbles = (even & kNibbles) | (odd >> drop & kNibbles) << 4;
        std::memcpy(block + 64 * pair + 4 * lane, &nibbles, 4);
        more |= (even >> 4 & kOnes) << (7 - pair) | (odd & kOnes) << (3 - pair);
    }
    if (drop) std::memcpy(block + 256 + 4 * lane, &more, 4);
}

// Write the codes of features [first, last) of a lane; others of their blocks are 0.
void pack_group(const LinearLayout& layout, const Codes& codes, int64_t first, int64_t last,
                int lane, uint8_t* data) {
    if (layout.form != Form::mx9) {
        const int64_t size = layout.form == Form::draft5 ? 320 : 256;
        for (int64_t k = first; k < last; k += 32)
            pack_block(layout, codes.data() + (k - first), lane, data + size * (k / 32));
        return;
    }
    for (int64_t k = first; k < last; ++k)
        for (const Field& f : fields_of(layout, k, lane))
            data[f.byte] = static_cast<uint8_t>(
                data[f.byte] | (codes[static_cast<size_t>(k - first)] >> f.from & f.mask) << f.at);
}

bool pack_codes(const LinearLayout& layout, const uint16_t* values, int lanes, uint8_t* tile) {
    uint8_t* data = tile + layout.head_bytes();
    std::memset(tile, 127, layout.head_bytes());
    for (int lane = 0; lane < lanes; ++lane) {
        const uint16_t* row = values + lane * layout.features;
        for (int64_t first = 0; first < layout.features; first += layout.group) {
            const int64_t last = std::min<int64_t>(first + layout.group, layout.features);
            int unit;
            if (!find_unit(layout, row + first, last - first, unit)) return false;
            const int octet = unit + unit_shift(layout) + 127;
            if (octet < 1 || octet > 254) return false;
            tile[16 * (first / layout.group) + lane] = static_cast<uint8_t>(octet);
            Codes codes{};
            if (!find_codes(layout, row + first, last - first, unit, codes)) return false;
            pack_group(layout, codes, first, last, lane, data);
        }
    }
    return true;
}

uint16_t coded_value(const LinearLayout& layout, const uint8_t* tile, int64_t k, int lane) {
    const int unit = tile[16 * (k / layout.group) + lane] - 127 - unit_shift(layout);
    const int code = code_at(layout, tile, k, lane);
    if (layout.form == Form::mx9) return pattern_of(code & 255, unit, code >> 8 != 0);
    const int half = 1 << magnitude_bits(layout);
    const int integer = layout.odd ? 2 * code - 2 * half + 1 : code - half + 1;
    return pattern_of(std::abs(integer), unit, integer < 0);
}

bool pack_tile(const LinearLayout& layout, const uint16_t* values, int lanes, uint8_t* tile,
               std::vector<Escape>& escapes) {
    if (layout.form >= Form::draft5) return pack_codes(layout, values, lanes, tile);
    if (layout.form == Form::bf16) {
        pack_bf16(layout, values, lanes, tile);
        return true;
    }
    pack_words(layout, values, lanes, tile, escapes);
    return true;
}

// The tiles of a matrix that one thread packs.
struct Share {
    int64_t first, last;  // tiles
    std::vector<Escape> escapes;
    std::vector<size_t> ends;
    bool good = true;
};

bool few(size_t escapes, int64_t values) {
    return static_cast<double>(escapes) <= kMostEscapes * static_cast<double>(values);
}

void pack_share(const LinearLayout& layout, const uint16_t* values, int64_t out, Share& share,
                uint8_t* bytes) {
    for (int64_t tile = share.first; tile < share.last; ++tile) {
        const int lanes = static_cast<int>(std::min<int64_t>(kTile, out - kTile * tile));
        share.good =
            pack_tile(layout, values + kTile * tile * layout.features, lanes,
                      bytes + static_cast<size_t>(tile) * layout.tile_bytes(), share.escapes) &&
            few(share.escapes.size(), out * layout.features);
        if (!share.good) return;
        share.ends.push_back(share.escapes.size());
    }
}

// Return false if the layout cannot hold the values.
bool pack_all(const uint16_t* values, int64_t out, int threads, PackedTiles& packed) {
    const int64_t tiles = (out + kTile - 1) / kTile;
    packed.bytes.assign(static_cast<size_t>(tiles) * packed.layout.tile_bytes(), 0);
    std::vector<Share> shares;
    for (int i = 0; i < threads; ++i)
        shares.push_back({tiles * i / threads, tiles * (i + 1) / threads, {}, {}});
    std::atomic<bool> done{true};
    Pool(threads, false).run([&](int i) {
        if (!attempt(
                [&] { pack_share(packed.layout, values, out, shares[i], packed.bytes.data()); }))
            done = false;
    });
    if (!done) throw std::bad_alloc();
    for (const Share& share : shares) {
        if (!share.good) return false;
        const size_t before = packed.escapes.size();
        packed.escapes.insert(packed.escapes.end(), share.escapes.begin(), share.escapes.end());
        for (const size_t end : share.ends) packed.escape_ends.push_back(before + end);
    }
    return few(packed.escapes.size(), out * packed.layout.features);
}

}  // namespace

int64_t LinearLayout::stored_features() const {
    return round_up(features, form >= Form::draft5 ? group : 32);  // planes: as its draft
}

size_t LinearLayout::tile_bytes() const {
    static constexpr std::array<size_t, kForms> kBlock = {1024, 768, 512, 320, 256, 576, 512};
    const size_t blocks = static_cast<size_t>(stored_features()) / 32;
    return head_bytes() + blocks * kBlock[static_cast<int>(form)];
}

size_t LinearLayout::head_bytes() const {
    if (form < Form::draft5 || form == Form::planes) return 0;
    return static_cast<size_t>(round_up(16 * stored_features() / group, 64));
}
int32_t LinearLayout::bias() const {
    if (form == Form::mx9) return 0;
    if (form == Form::draft5) return odd ? 124 : 120;
    return odd ? 120 : 112;
}

int code_at(const LinearLayout& layout, const uint8_t* tile, int64_t k, int lane) {
    const uint8_t* data = tile + layout.head_bytes();
    int code = 0;
    for (const Field& f : fields_of(layout, k, lane))
        code |= (data[f.byte] >> f.at & f.mask) << f.from;
    return code;
}

void unpack_row(const LinearLayout& layout, const uint8_t* tile, int lane, uint16_t* values) {
    for (int64_t k = 0; k < layout.features; ++k)
        values[k] = layout.form < Form::draft5 ? get_value(layout, tile, WordPlace(k, lane))
                                               : coded_value(layout, tile, k, lane);
}

std::vector<uint16_t> draft_values(const uint16_t* values, int64_t out, int64_t in, int group) {
    std::vector<uint16_t> drafts(static_cast<size_t>(out * in));
    for (int64_t row = 0; row < out; ++row)
        for (int64_t first = 0; first < in; first += group) {
            const int64_t begin = row * in + first,
                          end = begin + std::min<int64_t>(group, in - first);
            int most = 9;  // of values below, the window is 0
            for (int64_t i = begin; i < end; ++i)
                if ((values[i] >> 7 & 255) < 255) most = std::max(most, values[i] >> 7 & 255);
            for (int64_t i = begin; i < end; ++i) {
                const int exponent = values[i] >> 7 & 255, below = most - std::max(exponent, 1);
                const int window =
                    below < 0 ? 255 : (128 | (values[i] & 127)) >> std::min(below, 8);
                drafts[static_cast<size_t>(i)] =
                    pattern_of(window / 16 * 16 + 8, most - 134, (values[i] & 0x8000) != 0);
            }
        }
    return drafts;
}

void pack_bf16(const LinearLayout& layout, const uint16_t* values, int64_t rows, uint8_t* lines) {
    const int64_t pairs = layout.features / 2, tiles = rows > kTile ? 2 : 1;
    const auto put = [&](int64_t row, int64_t pair, uint32_t both) {
        const int64_t line = pair * tiles + row / kTile;
        std::memcpy(lines + 64 * line + 4 * (row % kTile), &both, 4);
    };
    for (int64_t start = 0; start < pairs; start += kTile)  // one square at a time fits the cache
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t pair = start; pair < std::min(start + kTile, pairs); ++pair) {
                uint32_t both;
                std::memcpy(&both, values + row * layout.features + 2 * pair, 4);
                put(row, pair, both);
            }
    for (int64_t row = 0; row < kTile * tiles; ++row)  // padding rows are zeros
        for (int64_t pair = row < rows ? pairs : 0; pair < layout.stored_features() / 2; ++pair) {
            const bool half = row < rows && 2 * pair + 1 == layout.features;
            put(row, pair, half ? values[row * layout.features + 2 * pair] : 0);
        }
}

PackedTiles pack_tiles(const uint16_t* values, int64_t out, int64_t in, Form form, int group,
                       int threads) {
    const bool drafts = form == Form::draft5 || form == Form::draft4;
    for (const bool odd : {true, false}) {
        if (odd && !drafts) continue;
        PackedTiles packed;
        packed.layout.form = form;
        packed.layout.features = in;
        packed.layout.group = group;
        packed.layout.odd = odd;
        if (is_table_form(form)) {
            packed.layout.table = choose_table(values, out * in, form);
            packed.layout.places = places_of(packed.layout.table, form);
        }
        if (pack_all(values, out, threads, packed)) return packed;
    }
    return pack_tiles(values, out, in, Form::bf16, group, threads);
}

}  // namespace cassandra
