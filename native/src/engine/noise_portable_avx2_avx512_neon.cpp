// The kernels of engine/noise.h, compiled once for each instruction set.

#include "engine/noise.h"

#include <cmath>
#include <cstring>

#include "common/vector16.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

constexpr int LANES = 16, WORDS = 4, BLOCK = LANES * WORDS;
constexpr double MAX_NOISE = 22.9;  // above -log(-log(1 - 2^-33))

// Sixteen words of 32 bits.
#if defined(__AVX512F__)

struct U16 {
    __m512i v;
};
inline U16 set_words(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
inline U16 load_words(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_words(uint32_t* p, U16 a) { _mm512_storeu_si512(p, a.v); }
inline U16 mix(U16 a, U16 b, U16 c) { return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, 0x96)}; }
inline void multiply(U16 a, uint32_t by, U16& high, U16& low) {
    const __m512i factor = _mm512_set1_epi32(static_cast<int>(by));
    const __m512i even = _mm512_mul_epu32(a.v, factor);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
    low.v = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    high.v = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}

#elif defined(__AVX2__)

struct U16 {
    __m256i v[2];
};
inline U16 set_words(uint32_t x) {
    const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
    return {{v, v}};
}
inline U16 load_words(const uint32_t* p) {
    const auto* at = reinterpret_cast<const __m256i*>(p);
    return {{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
}
inline void store_words(uint32_t* p, U16 a) {
    auto* at = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(at, a.v[0]);
    _mm256_storeu_si256(at + 1, a.v[1]);
}
inline U16 mix(U16 a, U16 b, U16 c) {
    for (int i = 0; i < 2; ++i) a.v[i] = _mm256_xor_si256(a.v[i], _mm256_xor_si256(b.v[i], c.v[i]));
    return a;
}
inline void multiply(U16 a, uint32_t by, U16& high, U16& low) {
    const __m256i factor = _mm256_set1_epi32(static_cast<int>(by));
    for (int i = 0; i < 2; ++i) {
        const __m256i even = _mm256_mul_epu32(a.v[i], factor);
        const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v[i], 32), factor);
        low.v[i] = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
        high.v[i] = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    }
}

#else

struct U16 {
    uint32_t lane[LANES];
};
inline U16 set_words(uint32_t x) {
    U16 a;
    for (uint32_t& lane : a.lane) lane = x;
    return a;
}
inline U16 load_words(const uint32_t* p) {
    U16 a;
    std::memcpy(a.lane, p, sizeof a.lane);
    return a;
}
inline void store_words(uint32_t* p, U16 a) { std::memcpy(p, a.lane, sizeof a.lane); }
inline U16 mix(U16 a, U16 b, U16 c) {
    for (int i = 0; i < LANES; ++i) a.lane[i] ^= b.lane[i] ^ c.lane[i];
    return a;
}
inline void multiply(U16 a, uint32_t by, U16& high, U16& low) {
    for (int i = 0; i < LANES; ++i) {
        const uint64_t product = static_cast<uint64_t>(a.lane[i]) * by;
        high.lane[i] = static_cast<uint32_t>(product >> 32);
        low.lane[i] = static_cast<uint32_t>(product);
    }
}

#endif

// Fill the words [WORDS][LANES] of a block of tokens by Philox4x32-10.
void philox(uint32_t block, uint32_t position, uint64_t seed, uint32_t words[WORDS][LANES]) {
    for (int i = 0; i < LANES; ++i) words[0][i] = block * LANES + static_cast<uint32_t>(i);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    U16 c0 = load_words(words[0]), c1 = set_words(position), c2 = set_words(0), c3 = c2;
    for (int round = 0; round < 10; ++round) {
        U16 high0, low0, high2, low2;
        multiply(c0, 0xD2511F53u, high0, low0);
        multiply(c2, 0xCD9E8D57u, high2, low2);
        c0 = mix(high2, c1, set_words(k0));
        c2 = mix(high0, c3, set_words(k1));
        c1 = low2;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    store_words(words[0], c0);
    store_words(words[1], c1);
    store_words(words[2], c2);
    store_words(words[3], c3);
}

double gumbel(uint32_t word) { return -std::log(-std::log((word + 0.5) * 0x1p-32)); }

V16 load_logits(const Scan& scan, int at) {
    if (at + LANES <= scan.count) return load(scan.logits + at);
    float lane[LANES];
    for (int i = 0; i < LANES; ++i) lane[i] = at + i < scan.count ? scan.logits[at + i] : -INFINITY;
    return load(lane);
}

void add_lane(const Scan& scan, int at, uint32_t word, Pick& found) {
    if (at >= scan.count || !scan.cut.allows(scan.logits[at], at)) return;
    found.add(at, scan.logits[at] * scan.logit_factor + gumbel(word) * scan.noise_factor);
}

// The bound of `found` in the form that lanes are compared with: a token whose noise exceeds
// (bound - logit) * inverse + shift may be the second or better.
struct Bound {
    float logit, inverse, shift, least;

    Bound(const Scan& scan, const Pick& found) {
        const int32_t at = found.second;
        logit = at < 0 ? 0.0f : scan.logits[at];
        const double ratio = scan.logit_factor / scan.noise_factor;
        inverse = ratio < 1e30 ? static_cast<float>(ratio) : 1e30f;
        const double noise = (found.second_score - logit * scan.logit_factor) / scan.noise_factor;
        const double own = noise - 1e-15 * std::fabs(logit * ratio) - 1e-3;  // without rounding
        shift = at < 0 ? -INFINITY : static_cast<float>(own);
        const double low = at < 0 ? -INFINITY : logit + (own - MAX_NOISE) / ratio;
        least = static_cast<float>(low) - 1e-5f * std::fabs(static_cast<float>(low));
        if (!(least >= scan.cut.logit)) least = scan.cut.logit;
    }
};

// Add the lanes whose noise may be large enough. 1 - u, rounded down to 24 bits, is compared with
// an upper bound of the probability that noise exceeds a value g: 1 - exp(-exp(-g)) <= exp(-g).
void add_lanes(const Scan& scan, int at, V16 logits, const uint32_t* words, const Bound& bound,
               Pick& found) {
    float below[LANES], lane[LANES];
    for (int i = 0; i < LANES; ++i)
        below[i] = static_cast<float>(static_cast<int32_t>(0xFFFFFFu - (words[i] >> 8))) * 0x1p-24f;
    const V16 power = sub(mul(sub(logits, set(bound.logit)), set(bound.inverse)), set(bound.shift));
    const V16 chance = mul(exponential(power), set(1.001f));
    const V16 excess = sub(chance, load(below));
    if (!any_above(excess, -1e-30f)) return;
    store(lane, excess);
    for (int i = 0; i < LANES; ++i)
        if (lane[i] > -1e-30f) add_lane(scan, at + i, words[i], found);
}

// Add the likely tokens first, so that the bound is high from the start.
void add_likely(const Scan& scan, Pick& found) {
    for (int i = 0; i < LIKELY && scan.likely[i] >= 0; ++i) {
        const int at = scan.likely[i];
        uint32_t words[WORDS][LANES];
        philox(static_cast<uint32_t>(at / BLOCK), scan.position, scan.seed, words);
        add_lane(scan, at, words[at % BLOCK / LANES][at % LANES], found);
    }
}

void scan_row(const Scan& scan, Pick& found) {
    add_likely(scan, found);
    Bound bound(scan, found);
    for (int at = 0; at < scan.count; at += BLOCK) {
        V16 logits[WORDS];
        for (int word = 0; word < WORDS; ++word)
            logits[word] = load_logits(scan, at + word * LANES);
        const V16 high = max(max(logits[0], logits[1]), max(logits[2], logits[3]));
        if (largest(high) < bound.least) continue;
        uint32_t words[WORDS][LANES];
        philox(static_cast<uint32_t>(at / BLOCK), scan.position, scan.seed, words);
        const int32_t before = found.second;
        for (int word = 0; word < WORDS; ++word)
            if (!(largest(logits[word]) < bound.least))
                add_lanes(scan, at + word * LANES, logits[word], words[word], bound, found);
        if (found.second != before) bound = Bound(scan, found);
    }
}

double mass(const float* logits, int count, float best, float inverse_temperature) {
    const V16 top = set(best), inverse = set(inverse_temperature);
    double total = 0.0;
    const auto power = [&](V16 x) { return exponential(mul(sub(x, top), inverse)); };
    int at = 0;
    for (; at + BLOCK <= count; at += BLOCK)
        total += sum(add(add(power(load(logits + at)), power(load(logits + at + 16))),
                         add(power(load(logits + at + 32)), power(load(logits + at + 48)))));
    for (; at < count; ++at) total += std::exp((logits[at] - best) * inverse_temperature);
    return total;
}

}  // namespace

const NoiseKernels noise_kernels = {mass, scan_row};

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
