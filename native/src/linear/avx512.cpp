// Linear kernels for AVX-512.
#include "linear/wide.h"

namespace cassandra {

const LinearKernels linear_kernels_avx512 = avx512::make_kernels<avx512::Wide>();

}  // namespace cassandra
