#include "codec/kernels.h"

namespace cassandra::codec {

const Kernels& kernels() {
#ifdef CASSANDRA_HAVE_AVX512
    if (current_isa() >= Isa::avx512) return avx512::codec_kernels;
#endif
#ifdef CASSANDRA_HAVE_AVX2
    if (current_isa() >= Isa::avx2) return avx2::codec_kernels;
#endif
    return portable::codec_kernels;
}

const Walks& walks() {
#ifdef CASSANDRA_HAVE_AVX512
    if (current_isa() >= Isa::avx512) return avx512::codec_walks;
#endif
#ifdef CASSANDRA_HAVE_AVX2
    if (current_isa() >= Isa::avx2) return avx2::codec_walks;
#endif
    return portable::codec_walks;
}

}  // namespace cassandra::codec
