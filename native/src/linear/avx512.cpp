// Linear kernels for AVX-512.
#include "linear/every_form.h"
#include "linear/wide.h"

namespace cassandra {

const LinearKernels avx512::linear_kernels = avx512::make_kernels<avx512::Wide>();

}  // namespace cassandra
