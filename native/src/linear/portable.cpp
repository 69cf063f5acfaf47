// Linear kernels for any processor, with the compiler's portable vectors. They define the results
// of the other kernels.
#include <algorithm>

#include "linear/every_form.h"

namespace cassandra {
namespace portable {
namespace {

typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(16)));

struct Vectors : WholeTiles {
    static constexpr int kRows = 1, kCodeRows = 1;

    struct F {
        Floats part[4];
    };
    struct I {
        Ints part[4];
    };
    struct B {
        Bits part[4];
    };
    using Table = const uint16_t*;

    template <class To, class From> static To as(From from) {
        static_assert(sizeof(To) == sizeof(From), "the same bits");
        To to;
        std::memcpy(&to, &from, sizeof to);
        return to;
    }

    template <class T, class Each> static T each(Each function) {
        T result;
        for (int i = 0; i < 4; ++i) result.part[i] = function(i);
        return result;
    }

    static Bits all(uint32_t x) { return Bits{x, x, x, x}; }

    static F zero() { return F{}; }
    static I integers(int32_t x) {
        return each<I>([&](int) { return Ints{x, x, x, x}; });
    }
    static B words(uint16_t x) {
        return each<B>([&](int) { return all(x * 0x10001U); });
    }
    static B load(const uint8_t* p) {
        B result;
        std::memcpy(&result, p, 64);
        return result;
    }
    static void store(float* y, const F& a) { std::memcpy(y, &a, 64); }

    static F add(const F& a, const F& b) {
        return each<F>([&](int i) { return a.part[i] + b.part[i]; });
    }
    static I add(const I& a, const I& b) {
        return each<I>([&](int i) { return a.part[i] + b.part[i]; });
    }
    // a * b is exact in all uses, so fusing does not change the result.
    static F multiply_add(const F& a, const F& b, const F& c) {
        return each<F>([&](int i) { return a.part[i] * b.part[i] + c.part[i]; });
    }
    static F scaled(const I& a, float s) {
        return each<F>([&](int i) { return __builtin_convertvector(a.part[i], Floats) * s; });
    }
    static I multiply(const I& a, int32_t x) {
        return each<I>([&](int i) { return a.part[i] * x; });
    }
    // Return 2^(byte - 127) of 16 bytes, 1..254.
    static F units(const uint8_t* p) {
        return each<F>([&](int i) {
            const uint8_t* q = p + 4 * i;
            return as<Floats>(Bits{q[0], q[1], q[2], q[3]} << 23);
        });
    }

    static B bit_and(const B& a, const B& b) {
        return each<B>([&](int i) { return a.part[i] & b.part[i]; });
    }
    // Select bits of a where the mask has ones, else of b.
    static B select(const B& mask, const B& a, const B& b) {
        return each<B>(
            [&](int i) { return (a.part[i] & mask.part[i]) | (b.part[i] & ~mask.part[i]); });
    }
    // Shift words left for n > 0, right for n < 0.
    template <int n> static B shift(const B& a) {
        return each<B>([&](int i) {
            const Halves words = as<Halves>(a.part[i]);
            if constexpr (n >= 0)
                return as<Bits>(words << n);
            else
                return as<Bits>(words >> -n);
        });
    }
    static B swap_bytes(const B& a) {
        return each<B>([&](int i) {
            const Halves words = as<Halves>(a.part[i]);
            return as<Bits>((words << 8) | (words >> 8));
        });
    }
    // Look up words of the table by the low four bits of each word.
    static Table load_table(const uint16_t* table) { return table; }
    static B lookup(Table table, const B& places) {
        return each<B>([&](int i) {
            Halves words = as<Halves>(places.part[i]) & 15;
            for (int j = 0; j < 8; ++j) words[j] = table[words[j]];
            return as<Bits>(words);
        });
    }
    using Octets = uint8_t __attribute__((vector_size(16)));
    using Highs = const uint8_t*;  // of 32 codes
    static Highs load_highs(const uint8_t (&all)[32]) { return all; }
    // Loops over bytes are not inlined: g++ -O3 would take two minutes to unroll them everywhere.
    template <int shift> [[gnu::noinline]] static B look_up_codes(Highs highs, const B& codes) {
        return each<B>([&](int i) {
            Octets places = as<Octets>(codes.part[i]) >> shift;
            for (int j = 0; j < 16; ++j) places[j] = highs[places[j]];
            return as<Bits>(places);
        });
    }
    // Return halves and last bits of the sums, in all bytes and words of their lanes.
    [[gnu::noinline]] static void group_sums(const uint8_t* p, int sum, B& high, B& offset) {
        for (int i = 0; i < 4; ++i) {
            const uint8_t* q = p + 4 * i;
            const Bits sums = (Bits{q[0], q[1], q[2], q[3]} + static_cast<uint32_t>(sum)) & 255;
            Bits halves = sums >> 1;
            for (int j = 0; j < 4; ++j)
                halves[j] =
                    std::min<uint32_t>(std::max<uint32_t>(halves[j], kLeastHigh), kMostHigh);
            high.part[i] = halves * 0x01010101U;
            offset.part[i] = (sums & 1) * (kOneExponent * 0x00010001U);
        }
        high = by_pairs(high);
    }
    static B add_bytes(const B& a, const B& b) {
        return each<B>(
            [&](int i) { return as<Bits>(as<Octets>(a.part[i]) + as<Octets>(b.part[i])); });
    }
    static B add_words(const B& a, const B& b) {
        return each<B>(
            [&](int i) { return as<Bits>(as<Halves>(a.part[i]) + as<Halves>(b.part[i])); });
    }
    // Bytes of four features of a lane become those that place_in_line() has.
    [[gnu::noinline]] static B by_pairs(const B& a) {
        return each<B>([&](int i) {
            const auto from = as<Octets>(a.part[i]);
            Octets to;
            for (int j = 0; j < 16; ++j) to[place_in_line(j / 4, j % 4)] = from[j];
            return as<Bits>(to);
        });
    }
    [[gnu::noinline]] static void interleave(const B& low, const B& high, B& first, B& second) {
        for (int i = 0; i < 4; ++i) {
            const auto lows = as<Octets>(low.part[i]), highs = as<Octets>(high.part[i]);
            Octets words[2];
            for (int j = 0; j < 16; ++j) {
                words[j / 8][j % 8 * 2] = lows[j];
                words[j / 8][j % 8 * 2 + 1] = highs[j];
            }
            first.part[i] = as<Bits>(words[0]);
            second.part[i] = as<Bits>(words[1]);
        }
    }
    static void put(uint8_t* p, const B& a) { std::memcpy(p, &a, 64); }

    // Negate words where the mask has a one.
    static B negate(const B& a, uint32_t mask) {
        return each<B>([&](int i) {
            const uint16_t mine = static_cast<uint16_t>((mask >> (8 * i)) & 0xFF);
            const Halves place{1, 2, 4, 8, 16, 32, 64, 128};
            const Shorts ones = (place & mine) != 0;
            return as<Bits>((as<Shorts>(a.part[i]) ^ ones) - ones);
        });
    }

    // Return the second and the first word of each lane, BF16 patterns, as floats.
    static F high_words(const B& a) {
        return each<F>([&](int i) { return as<Floats>(a.part[i] & 0xFFFF0000U); });
    }
    static F low_words(const B& a) {
        return each<F>([&](int i) { return as<Floats>(a.part[i] << 16); });
    }
    static F floats(float x) {
        return each<F>([&](int) { return Floats{x, x, x, x}; });
    }
    static Ints both_words(Shorts products) {
        const Bits bits = as<Bits>(products);
        return (as<Ints>(bits << 16) >> 16) + (as<Ints>(bits) >> 16);
    }
    // Sum four products per lane of unsigned and signed bytes. One product fits in 16 bits.
    static I dot_u8(const I& sum, const B& w, const uint32_t* x, int k) {
        const Shorts bytes = as<Shorts>(all(x[k]));
        const Shorts odd = bytes >> 8, even = as<Shorts>(as<Halves>(bytes) << 8) >> 8;
        return each<I>([&](int i) {
            const Halves words = as<Halves>(w.part[i]);
            return sum.part[i] + both_words(as<Shorts>(words & 0xFF) * even) +
                   both_words(as<Shorts>(words >> 8) * odd);
        });
    }
    static I dot_i16(const I& sum, const B& w, const uint32_t* x, int k) {
        const Bits both = all(x[k]);
        const Ints high = as<Ints>(both) >> 16, low = as<Ints>(both << 16) >> 16;
        return each<I>([&](int i) {
            const Bits bits = w.part[i];
            return sum.part[i] + (as<Ints>(bits) >> 16) * high + (as<Ints>(bits << 16) >> 16) * low;
        });
    }
};

}  // namespace
}  // namespace portable

const LinearKernels portable::linear_kernels = portable::make_kernels<portable::Vectors>();

}  // namespace cassandra
