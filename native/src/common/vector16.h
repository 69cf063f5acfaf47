// Vectors of sixteen floats, for kernels that are written once and compiled for each instruction
// set.
//
// Lanes are independent and sum() has one fixed order, so a result depends on the instruction set
// only through madd(): one rounding with AVX-512 and NEON, two elsewhere. So AVX-512 and NEON agree
// bit for bit, and so do portable and AVX2.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace cassandra {
namespace CASSANDRA_ISA {

#if defined(__AVX512F__)

struct V16 {
    __m512 v;
};

static inline V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
static inline V16 set(float x) { return {_mm512_set1_ps(x)}; }
static inline V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline V16 min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline V16 madd(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline bool any_above(V16 a, float x) {
    return _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(x), _CMP_GT_OQ) != 0;
}
// Load pairs of BF16: the first numbers and the second numbers.
static inline void load_pairs(const uint16_t* p, V16& first, V16& second) {
    const __m512i bits = _mm512_loadu_si512(p);
    first.v = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    second.v = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-0x10000)));
}
// Raise 2 to the power of the integers in the low bits of a (exponents of normal numbers).
static inline V16 power_of_two(V16 a) {
    const __m512i n = _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}

#elif defined(__AVX2__)

struct V16 {
    __m256 low, high;
};

#define CASSANDRA_BOTH(name, intrinsic)                              \
    static inline V16 name(V16 a, V16 b) {                           \
        return {intrinsic(a.low, b.low), intrinsic(a.high, b.high)}; \
    }
CASSANDRA_BOTH(add, _mm256_add_ps)
CASSANDRA_BOTH(sub, _mm256_sub_ps)
CASSANDRA_BOTH(mul, _mm256_mul_ps)
CASSANDRA_BOTH(div, _mm256_div_ps)
CASSANDRA_BOTH(max, _mm256_max_ps)
CASSANDRA_BOTH(min, _mm256_min_ps)
#undef CASSANDRA_BOTH

static inline V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, V16 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
static inline V16 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline V16 madd(V16 a, V16 b, V16 c) { return add(mul(a, b), c); }
static inline bool any_above(V16 a, float x) {
    const __m256 bound = _mm256_set1_ps(x);
    const __m256 low = _mm256_cmp_ps(a.low, bound, _CMP_GT_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(low, _mm256_cmp_ps(a.high, bound, _CMP_GT_OQ))) != 0;
}
// Load pairs of BF16: the first numbers and the second numbers.
static inline void load_pairs(const uint16_t* p, __m256& first, __m256& second) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    first = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    second = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-0x10000)));
}
static inline void load_pairs(const uint16_t* p, V16& first, V16& second) {
    load_pairs(p, first.low, second.low);
    load_pairs(p + 16, first.high, second.high);
}
static inline __m256 power_of_two(__m256 a) {
    const __m256i n = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}
static inline V16 power_of_two(V16 a) { return {power_of_two(a.low), power_of_two(a.high)}; }

#elif defined(__ARM_FEATURE_DOTPROD)

struct V16 {
    float32x4_t part[4];
};

template <class Each> static inline V16 each(Each f) { return {{f(0), f(1), f(2), f(3)}}; }

#define CASSANDRA_EACH(name, expression)                    \
    static inline V16 name(V16 a, V16 b) {                  \
        return each([&](int i) {                            \
            const float32x4_t x = a.part[i], y = b.part[i]; \
            return expression;                              \
        });                                                 \
    }
CASSANDRA_EACH(add, vaddq_f32(x, y))
CASSANDRA_EACH(sub, vsubq_f32(x, y))
CASSANDRA_EACH(mul, vmulq_f32(x, y))
CASSANDRA_EACH(div, vdivq_f32(x, y))
// The second argument of equal ones, and if one is NaN, as on x86.
CASSANDRA_EACH(max, vbslq_f32(vcgtq_f32(x, y), x, y))
CASSANDRA_EACH(min, vbslq_f32(vcltq_f32(x, y), x, y))
#undef CASSANDRA_EACH

static inline V16 load(const float* p) {
    return each([&](int i) { return vld1q_f32(p + 4 * i); });
}
static inline void store(float* p, V16 a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.part[i]);
}
static inline V16 set(float x) {
    return each([&](int) { return vdupq_n_f32(x); });
}
static inline V16 madd(V16 a, V16 b, V16 c) {
    return each([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
}
static inline bool any_above(V16 a, float x) {
    const float32x4_t bound = vdupq_n_f32(x);
    const auto above = [&](int i) { return vcgtq_f32(a.part[i], bound); };
    return vmaxvq_u32(vorrq_u32(vorrq_u32(above(0), above(1)), vorrq_u32(above(2), above(3)))) != 0;
}
static inline void load_pairs(const uint16_t* p, V16& first, V16& second) {
    for (int i = 0; i < 4; ++i) {
        const uint32x4_t bits = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
        first.part[i] = vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
        second.part[i] = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xFFFF0000)));
    }
}
static inline V16 power_of_two(V16 a) {
    return each([&](int i) {
        const uint32x4_t n = vaddq_u32(vreinterpretq_u32_f32(a.part[i]), vdupq_n_u32(127));
        return vreinterpretq_f32_u32(vshlq_n_u32(n, 23));
    });
}

#else

struct V16 {
    float lane[16];
};

#define CASSANDRA_EACH(name, expression)              \
    static inline V16 name(V16 a, V16 b) {            \
        V16 r;                                        \
        for (int i = 0; i < 16; ++i) {                \
            const float x = a.lane[i], y = b.lane[i]; \
            r.lane[i] = (expression);                 \
        }                                             \
        return r;                                     \
    }
CASSANDRA_EACH(add, x + y)
CASSANDRA_EACH(sub, x - y)
CASSANDRA_EACH(mul, x* y)
CASSANDRA_EACH(div, x / y)
CASSANDRA_EACH(max, x > y ? x : y)
CASSANDRA_EACH(min, x < y ? x : y)
#undef CASSANDRA_EACH

static inline V16 load(const float* p) {
    V16 r;
    std::memcpy(r.lane, p, sizeof r.lane);
    return r;
}
static inline void store(float* p, V16 a) { std::memcpy(p, a.lane, sizeof a.lane); }
static inline V16 set(float x) {
    V16 r;
    for (float& lane : r.lane) lane = x;
    return r;
}
static inline V16 madd(V16 a, V16 b, V16 c) { return add(mul(a, b), c); }
static inline bool any_above(V16 a, float x) {
    int found = 0;
    for (float lane : a.lane) found |= lane > x;
    return found != 0;
}
static inline void load_pairs(const uint16_t* p, V16& first, V16& second) {
    for (int i = 0; i < 16; ++i) {
        const uint32_t low = static_cast<uint32_t>(p[2 * i]) << 16;
        const uint32_t high = static_cast<uint32_t>(p[2 * i + 1]) << 16;
        std::memcpy(&first.lane[i], &low, sizeof low);
        std::memcpy(&second.lane[i], &high, sizeof high);
    }
}
static inline V16 power_of_two(V16 a) {
    for (float& lane : a.lane) {
        uint32_t bits;
        std::memcpy(&bits, &lane, sizeof bits);
        bits = (bits + 127u) << 23;
        std::memcpy(&lane, &bits, sizeof bits);
    }
    return a;
}

#endif

// Load the first (Half 0) or second numbers of pairs of BF16.
template <int Half> static inline V16 load_half(const uint16_t* p) {
    V16 half[2];
    load_pairs(p, half[0], half[1]);
    return half[Half];
}

// Return the sum of the lanes: halves are added, then quarters, and so on.
static inline float sum(V16 a);
// Return the largest lane.
static inline float largest(V16 a);

#if defined(__AVX512F__)

template <class Op> static inline float fold(V16 a, Op op) {
    a = op(a, {_mm512_shuffle_f32x4(a.v, a.v, 0x4E)});
    a = op(a, {_mm512_shuffle_f32x4(a.v, a.v, 0xB1)});
    a = op(a, {_mm512_permute_ps(a.v, 0x4E)});
    a = op(a, {_mm512_permute_ps(a.v, 0xB1)});
    return _mm512_cvtss_f32(a.v);
}
static inline float sum(V16 a) { return fold(a, add); }
static inline float largest(V16 a) { return fold(a, max); }

#else

static inline float sum(V16 a) {
    float lane[16];
    store(lane, a);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}
static inline float largest(V16 a) {
    float lane[16];
    store(lane, a);
    float found = lane[0];
    for (int i = 1; i < 16; ++i) found = lane[i] > found ? lane[i] : found;
    return found;
}

#endif

// Return e^x within about 2 units in the last place. x below -87 gives about 1e-38. NaN gives NaN,
// because min and max return their second argument if one is NaN.
static inline V16 exponential(V16 x) {
    x = min(set(88.0f), max(set(-87.0f), x));
    const V16 magic = set(12582912.0f);  // 1.5 * 2^23: adding t puts round(t) in the low bits
    const V16 shifted = madd(x, set(1.44269504f), magic);
    const V16 n = sub(shifted, magic);
    V16 r = madd(n, set(-0.693359375f), x);
    r = madd(n, set(2.12194440e-4f), r);
    V16 p = set(1.9875691500e-4f);
    for (float c :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = madd(p, r, set(c));
    p = add(madd(mul(p, r), r, r), set(1.0f));
    return mul(p, power_of_two(shifted));
}

// Return bound * tanh(x / bound). A product with zero turns infinities into NaN, which tanh would
// hide.
static inline V16 soft_cap(V16 x, V16 bound) {
    const V16 one = set(1.0f), two = set(2.0f);
    const V16 power = exponential(mul(two, div(x, bound)));
    const V16 tanh = sub(one, div(two, add(power, one)));
    return madd(x, set(0.0f), mul(bound, tanh));
}

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
