// Bitmap kernels with pdep and pext. For files compiled for AVX2 or better.
#pragma once

#include <immintrin.h>

#include "codec/kernels.h"

namespace cassandra::codec {
namespace {

constexpr uint64_t ALL = ~uint64_t{0};

// Return a mask of the lanes below n among the 64 (or 32) from lane `i` on.
static inline uint64_t lanes64(int64_t n, int64_t i) {
    return n - i >= 64 ? ALL : _bzhi_u64(ALL, static_cast<unsigned>(n - i));
}
static inline uint64_t word_at(const uint8_t* bitmap, int64_t i) {
    return load<uint64_t>(bitmap + i / 8);
}

inline void spread_bits(const uint8_t* bitmap, int64_t n, const uint8_t* dense, uint8_t* out) {
    int64_t from = 0;
    for (int64_t i = 0; i < n; i += 64) {
        const uint64_t set = word_at(bitmap, i) & lanes64(n, i);
        const unsigned shift = from % 8;
        uint64_t bits = load<uint64_t>(dense + from / 8) >> shift;
        if (shift) bits |= uint64_t{dense[from / 8 + 8]} << (64 - shift);
        store(out + i / 8, _pdep_u64(bits, set));
        from += _mm_popcnt_u64(set);
    }
}

inline int64_t gather_bits(const uint8_t* bitmap, int64_t n, const uint8_t* in, uint8_t* dense) {
    int64_t to = 0;
    uint64_t partial = 0;  // bits of the incomplete byte
    for (int64_t i = 0; i < n; i += 64) {
        const uint64_t set = word_at(bitmap, i) & lanes64(n, i);
        const uint64_t bits = _pext_u64(word_at(in, i), set);
        const unsigned shift = to % 8;
        const uint64_t word = partial | bits << shift;
        store(dense + to / 8, word);
        store(dense + to / 8 + 8, shift ? bits >> (64 - shift) : uint64_t{0});
        to += _mm_popcnt_u64(set);
        partial = dense[to / 8] & ((1u << to % 8) - 1);
    }
    if (n) dense[to / 8] = static_cast<uint8_t>(partial);
    return to;
}

}  // namespace
}  // namespace cassandra::codec
