#include "engine/kernels.h"

#include "common/isa.h"

namespace cassandra {

const EngineKernels& engine_kernels() { CASSANDRA_RETURN_BEST(engine_kernels); }

}  // namespace cassandra
