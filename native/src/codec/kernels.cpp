#include "codec/kernels.h"

namespace cassandra::codec {

const Kernels& kernels() { CASSANDRA_RETURN_BEST(codec_kernels); }

const Walks& walks() { CASSANDRA_RETURN_BEST(codec_walks); }

}  // namespace cassandra::codec
