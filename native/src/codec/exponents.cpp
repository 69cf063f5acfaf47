// Choose group exponents by the error of the draft, as golden.choose_group_exponents.
#include <algorithm>

#include "codec/kernels.h"
#include "common/guard.h"

namespace cassandra::codec {
namespace {

constexpr int FRACTION = 8;          // bits below the unit of the default exponent
constexpr int IMPORTANCE_BITS = 22;  // see golden/arrays/exponents.py

struct Group {
    const uint16_t* values;
    const uint8_t* kept;            // may be null
    const uint64_t* importance;     // may be null
    const uint8_t *first, *second;  // magnitudes in the default exponent and in one less
    int64_t count;
    int exponent;
};

int importance_shift(const Group& g) {
    uint64_t largest = 0;
    for (int64_t i = 0; g.importance && i < g.count; ++i)
        largest = std::max(largest, g.importance[i]);
    int bits = 0;
    while (bits < 64 && largest >> bits) ++bits;
    return std::max(0, bits - IMPORTANCE_BITS);
}

// Return true if an exponent one less reduces the group's draft error.
bool is_closer(const Params& p, const Group& g) {
    const int shift = importance_shift(g), drop = p.truncated;
    int64_t costs[2] = {0, 0};
    for (int64_t i = 0; i < g.count; ++i) {
        const int exponent = g.values[i] >> 7 & 0xFF;
        if (exponent == 255 || (g.kept && !g.kept[i])) continue;
        const int significand = (g.values[i] & 0x7F) | (exponent > 0) << 7;
        const int down = std::clamp(g.exponent - std::max(exponent, 1), 0, 2 * FRACTION);
        const int exact = significand << FRACTION >> down;
        const int64_t weight = g.importance ? static_cast<int64_t>(g.importance[i] >> shift) : 1;
        const int64_t first = ((g.first[i] >> drop << drop | p.fill) << FRACTION) - exact;
        const int64_t second = ((g.second[i] >> drop << drop | p.fill) << (FRACTION - 1)) - exact;
        costs[0] += first * first * weight;
        costs[1] += second * second * weight;
    }
    return costs[1] < costs[0];
}

bool has_subnormal(const Group& g) {
    for (int64_t i = 0; i < g.count; ++i) {
        const int bits = g.values[i] & 0x7FFF;
        if (bits > 0 && bits < 0x80 && (!g.kept || g.kept[i])) return true;
    }
    return false;
}

}  // namespace
}  // namespace cassandra::codec

// Choose exponents of the groups of `count` values, as golden.choose_group_exponents; `kept` and
// `importance` (one per value) may be null. Returns false on failure.
CASSANDRA_API bool cassandra_choose_group_exponents(const cassandra::codec::Params* p,
                                                    const uint16_t* values, const uint8_t* kept,
                                                    const uint64_t* importance, int64_t count,
                                                    uint8_t* groups) {
    using namespace cassandra::codec;
    return cassandra::attempt([&] {
        const Kernels& k = kernels();
        const int64_t run = 64 * p->group;
        Buffer mask, first, second, lower, defaults;
        for (Buffer* b : {&mask, &first, &second, &lower, &defaults}) b->resize(run);
        uint8_t all[256];
        std::fill(all, all + 256, 1);
        for (int64_t start = 0; start < count; start += run) {
            const int64_t size = std::min(run, count - start), number = ceil_div(size, p->group);
            k.choose(values + start, kept ? kept + start : nullptr, all, size, mask.data());
            k.group_exponents(*p, values + start, mask.data(), size, defaults.data());
            for (int64_t i = 0; i < number; ++i)
                lower.data()[i] = static_cast<uint8_t>(std::max(defaults.data()[i] - 1, 1));
            k.magnitudes(*p, values + start, defaults.data(), size, first.data());
            k.magnitudes(*p, values + start, lower.data(), size, second.data());
            for (int64_t i = 0; i < number; ++i) {
                const int64_t at = start + i * p->group, inside = i * p->group;
                const Group group{values + at,
                                  kept ? kept + at : nullptr,
                                  importance ? importance + at : nullptr,
                                  first.data() + inside,
                                  second.data() + inside,
                                  std::min<int64_t>(p->group, count - at),
                                  defaults.data()[i]};
                int chosen = defaults.data()[i];
                const int least =
                    p->exact() && has_subnormal(group) ? cassandra::SUBNORMAL_FLOOR : 1;
                if (chosen > least && is_closer(*p, group)) --chosen;
                *groups++ = static_cast<uint8_t>(chosen);
            }
        }
    });
}
