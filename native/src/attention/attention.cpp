#include "attention/attention.h"

#include "common/isa.h"
#include "linear/kernels.h"

namespace cassandra {

const AttentionKernels& attention_kernels() {
#ifdef CASSANDRA_HAVE_AVX512BF16
    if (current_isa() >= Isa::avx512bf16 && has_fast_dots()) return avx512bf16::attention_kernels;
#endif
    CASSANDRA_RETURN_BEST(attention_kernels);
}

}  // namespace cassandra

// Return 1 if attention rounds queries and weights to BF16 with the selected instruction set.
CASSANDRA_API int cassandra_attention_rounded() {
    return cassandra::attention_kernels().rounded ? 1 : 0;
}
