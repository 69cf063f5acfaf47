#include "linear_avx512.h"

namespace cassandra {
namespace avx512bf16 {
namespace {

// vdpbf16ps adds the product of the high words first, as the others do. It takes denormal inputs
// for zeros and flushes denormal results.
struct WideBf16 : Wide {
    static F dot_bf16(F sum, B w, uint32_t x) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w),
                                reinterpret_cast<__m512bh>(
                                    _mm512_set1_epi32(static_cast<int>(x))));
    }
};

}  // namespace
}  // namespace avx512bf16

const LinearKernels linear_kernels_avx512bf16 = avx512bf16::make_kernels<avx512bf16::WideBf16>();

}  // namespace cassandra
