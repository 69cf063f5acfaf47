#include "engine/kernels.h"

#include "common/isa.h"

namespace cassandra {

const EngineKernels& engine_kernels() {
#ifdef CASSANDRA_HAVE_AVX512
    if (current_isa() >= Isa::avx512) return avx512::engine_kernels;
#endif
#ifdef CASSANDRA_HAVE_AVX2
    if (current_isa() >= Isa::avx2) return avx2::engine_kernels;
#endif
    return portable::engine_kernels;
}

}  // namespace cassandra
