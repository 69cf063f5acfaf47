// Linear kernels for 64-bit Arm. A vector has four of the 16 lanes of a tile, so that the sums of
// eight rows fit in the registers.
//
// Armv8.2 multiplies signed bytes (sdot): codes are shifted by 128, which the bias of a sum undoes.
// With I8MM it multiplies unsigned by signed ones (usdot), two outputs by two rows where there are
// two (usmmla), and with BF16 it adds products of words (bfmlalb, bfmlalt), each rounded once as a
// fused multiply-add of floats is.
#include <arm_neon.h>

#include "linear/every_form.h"

namespace cassandra {
namespace CASSANDRA_ISA {
namespace {

struct Quarters {
    static constexpr int kParts = 4, kRows = 8, kCodeRows = 8;
    static constexpr bool kLooksUpBytes = true, kLooksUpNibbles = false;
    static constexpr bool kAddsPairsOfCodes = false;
    template <int R, int N> static constexpr int kTogether = R <= 4 ? 4 : 2;
    template <int R> static constexpr int kWordParts = 1;
    template <int R> static constexpr bool kHalvesInTurn = false;

    // Products take one lane of the inputs.
    static float32x4_t inputs(const float* x) { return vld1q_f32(x); }
    static uint32x2_t inputs(const uint32_t* x) { return vld1_u32(x); }

    using F = float32x4_t;
    using I = int32x4_t;
    using B = uint16x8_t;
    using Table = uint8x16x2_t;  // low and high bytes of the words

    static F zero() { return vdupq_n_f32(0); }
    static I integers(int32_t x) { return vdupq_n_s32(x); }
    static B words(uint16_t x) { return vdupq_n_u16(x); }
    static B load(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
    static void store(float* y, F a) { vst1q_f32(y, a); }

    static F add(F a, F b) { return vaddq_f32(a, b); }
    static F multiply_add(F a, F b, F c) { return vfmaq_f32(c, a, b); }
    static F scaled(I a, float s) { return vmulq_n_f32(vcvtq_f32_s32(a), s); }
    static I multiply(I a, int32_t x) { return vmulq_n_s32(a, x); }
    static F units(const uint8_t* p) {
        uint32_t octets;
        std::memcpy(&octets, p, sizeof octets);
        const uint8x8_t all = vreinterpret_u8_u32(vdup_n_u32(octets));
        const uint32x4_t exponents = vmovl_u16(vget_low_u16(vmovl_u8(all)));
        return vreinterpretq_f32_u32(vshlq_n_u32(exponents, 23));
    }

    static B bit_and(B a, B b) { return vandq_u16(a, b); }
    static B select(B mask, B a, B b) { return vbslq_u16(mask, a, b); }
    template <int n> static B shift(B a) {
        if constexpr (n == 0)
            return a;
        else if constexpr (n > 0)
            return vshlq_n_u16(a, n);
        else
            return vshrq_n_u16(a, -n);
    }
    static B swap_bytes(B a) { return vreinterpretq_u16_u8(vrev16q_u8(vreinterpretq_u8_u16(a))); }
    static Table load_table(const uint16_t* table) {
        return vld2q_u8(reinterpret_cast<const uint8_t*>(table));
    }
    // Low and high bytes of the words of all nibbles that are lowest in a byte.
    static uint8x16x2_t octets(const Table& table, B places) {
        const uint8x16_t nibbles = vandq_u8(vreinterpretq_u8_u16(places), vdupq_n_u8(15));
        return {{vqtbl1q_u8(table.val[0], nibbles), vqtbl1q_u8(table.val[1], nibbles)}};
    }
    static B lookup(const Table& table, B places) {
        const uint8x16x2_t found = octets(table, places);
        return vreinterpretq_u16_u8(vtrn1q_u8(found.val[0], found.val[1]));
    }
    static B lookup_second(const Table& table, B places) {
        const uint8x16x2_t found = octets(table, places);
        return vreinterpretq_u16_u8(vtrn2q_u8(found.val[0], found.val[1]));
    }
    using Highs = uint8x16x2_t;  // of 32 codes
    static Highs load_highs(const uint8_t (&all)[32]) {
        return {{vld1q_u8(all), vld1q_u8(all + 16)}};
    }
    template <int shift> static B look_up_codes(const Highs& highs, B codes) {
        const uint8x16_t places = vshrq_n_u8(vreinterpretq_u8_u16(codes), shift);
        return vreinterpretq_u16_u8(vqtbl2q_u8(highs, places));
    }
    static void group_sums(const uint8_t* p, int sum, B& high, B& offset) {
        uint32_t octets;
        std::memcpy(&octets, p, sizeof octets);
        const uint8x16_t lanes = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
        const uint8x16_t units = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(octets)), lanes);
        const uint8x16_t sums = vaddq_u8(units, vdupq_n_u8(static_cast<uint8_t>(sum)));
        const uint8x16_t least = vmaxq_u8(vshrq_n_u8(sums, 1), vdupq_n_u8(kLeastHigh));
        high = by_pairs(vreinterpretq_u16_u8(vminq_u8(least, vdupq_n_u8(kMostHigh))));
        offset = vandq_u16(vshlq_n_u16(vreinterpretq_u16_u8(sums), 7), words(kOneExponent));
    }
    static B add_bytes(B a, B b) {
        return vreinterpretq_u16_u8(vaddq_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b)));
    }
    static B add_words(B a, B b) { return vaddq_u16(a, b); }
    static B by_pairs(B a) {
        const uint8x16_t order = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
        return vreinterpretq_u16_u8(vqtbl1q_u8(vreinterpretq_u8_u16(a), order));
    }
    static void interleave(B low, B high, B& first, B& second) {
        const uint8x16_t lows = vreinterpretq_u8_u16(low), highs = vreinterpretq_u8_u16(high);
        first = vreinterpretq_u16_u8(vzip1q_u8(lows, highs));
        second = vreinterpretq_u16_u8(vzip2q_u8(lows, highs));
    }
    static void put(uint8_t* p, B a) { vst1q_u8(p, vreinterpretq_u8_u16(a)); }
    // Negate words where the low eight bits of the mask have a one.
    static B negate(B a, uint32_t mask) {
        const B place = {1, 2, 4, 8, 16, 32, 64, 128};
        const B ones = vtstq_u16(vdupq_n_u16(static_cast<uint16_t>(mask)), place);
        return vsubq_u16(veorq_u16(a, ones), ones);
    }

    static F high_words(B a) {
        const uint32x4_t bits = vreinterpretq_u32_u16(a);
        return vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xFFFF0000)));
    }
    static F low_words(B a) {
        return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(a), 16));
    }
    static F floats(float x) { return vdupq_n_f32(x); }

    // The first words of all lanes, multiplied by words 0 and 2 of x, and the second, by 1 and 3.
    static void part_words(B& even, B& odd) {
        const B first = vuzp1q_u16(even, odd);
        odd = vuzp2q_u16(even, odd);
        even = first;
    }
    static I dot_i16(I sum, B w, uint32x2_t x, int k) {
        const int16x8_t all = vreinterpretq_s16_u16(w);
        const int16x4_t half = vget_low_s16(all), words = vreinterpret_s16_u32(x);
        if (k) return vmlal_high_lane_s16(vmlal_lane_s16(sum, half, words, 1), all, words, 3);
        return vmlal_high_lane_s16(vmlal_lane_s16(sum, half, words, 0), all, words, 2);
    }

#ifdef __ARM_FEATURE_MATMUL_INT8
    static constexpr int32_t kCodeShift = 0;
    static I dot_u8(I sum, B w, uint32x2_t x, int k) {
        const uint8x16_t codes = vreinterpretq_u8_u16(w);
        const int8x8_t octets = vreinterpret_s8_u32(x);
        return k ? vusdotq_lane_s32(sum, codes, octets, 1)
                 : vusdotq_lane_s32(sum, codes, octets, 0);
    }

    // A product of two outputs and two rows, of eight features each, has the rows of an output side
    // by side.
    static constexpr bool kMultipliesPairs = true;
    static void pair_outputs(B& low, B& high) {
        const uint32x4_t first = vreinterpretq_u32_u16(low), second = vreinterpretq_u32_u16(high);
        low = vreinterpretq_u16_u32(vzip1q_u32(first, second));
        high = vreinterpretq_u16_u32(vzip2q_u32(first, second));
    }
    static int8x16_t load_rows(const uint32_t* x, const uint32_t* y) {
        return vcombine_s8(vreinterpret_s8_u32(vld1_u32(x)), vreinterpret_s8_u32(vld1_u32(y)));
    }
    static I multiply_pairs(I sum, B w, int8x16_t rows) {
        return vusmmlaq_s32(sum, vreinterpretq_u8_u16(w), rows);
    }
    static I repeat_pair(const int32_t* p) { return vcombine_s32(vld1_s32(p), vld1_s32(p)); }
    static F repeat_pair(const float* p) { return vcombine_f32(vld1_f32(p), vld1_f32(p)); }
    static F repeat_first_half(F a) { return vzip1q_f32(a, a); }
    static F repeat_second_half(F a) { return vzip2q_f32(a, a); }
    static I multiply(I a, I b) { return vmulq_s32(a, b); }
    static F scaled(I a, F b) { return vmulq_f32(vcvtq_f32_s32(a), b); }
    static void part_rows(F& first, F& second) {
        const F even = vuzp1q_f32(first, second);
        second = vuzp2q_f32(first, second);
        first = even;
    }
#else
    static constexpr int32_t kCodeShift = 128;
    static constexpr bool kMultipliesPairs = false;
    static B shift_codes(B a) { return veorq_u16(a, vdupq_n_u16(0x8080)); }
    static I dot_u8(I sum, B w, uint32x2_t x, int k) {
        const int8x16_t codes = vreinterpretq_s8_u16(w);
        const int8x8_t octets = vreinterpret_s8_u32(x);
        return k ? vdotq_lane_s32(sum, codes, octets, 1) : vdotq_lane_s32(sum, codes, octets, 0);
    }
#endif

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    static constexpr bool kMultipliesWords = true;
    static constexpr int kWords = 4;
    // Instructions by name: GCC 12 allows all registers in the place of x, where only the first 16
    // can be. Sums are copied, because an array that is an operand stays in memory.
    static void multiply_add_words(const B* words, const uint16_t* x, F& even, F& odd) {
        const uint16x8_t inputs = vld1q_u16(x);
        F first = even, second = odd;
        __asm__(
            "bfmlalb %0.4s, %2.8h, %6.h[0]\n\tbfmlalt %1.4s, %2.8h, %6.h[1]\n\t"
            "bfmlalb %0.4s, %3.8h, %6.h[2]\n\tbfmlalt %1.4s, %3.8h, %6.h[3]\n\t"
            "bfmlalb %0.4s, %4.8h, %6.h[4]\n\tbfmlalt %1.4s, %4.8h, %6.h[5]\n\t"
            "bfmlalb %0.4s, %5.8h, %6.h[6]\n\tbfmlalt %1.4s, %5.8h, %6.h[7]"
            : "+&w"(first), "+&w"(second)
            : "w"(words[0]), "w"(words[1]), "w"(words[2]), "w"(words[3]), "x"(inputs));
        even = first;
        odd = second;
    }
#else
    static constexpr bool kMultipliesWords = false;
    static constexpr int kWords = 2;
#endif
};

}  // namespace
}  // namespace CASSANDRA_ISA

const LinearKernels CASSANDRA_ISA::linear_kernels =
    CASSANDRA_ISA::make_kernels<CASSANDRA_ISA::Quarters>();

}  // namespace cassandra
