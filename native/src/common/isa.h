// Which kernels run: the instruction sets of native/build.py, chosen once and switchable by tests.
#pragma once

// Entry points that Python sees. Everything else is hidden.
#define CASSANDRA_API extern "C" __attribute__((visibility("default")))

namespace cassandra {

// Same order as ISA_FLAGS in native/build.py. A level includes those before it.
enum class Isa : int { portable = 0, avx2 = 1, avx512 = 2, avx512bf16 = 3 };

// The best that the processor has and the compiler knew.
Isa best_isa();

// `table` of the best instruction set in use for which it is compiled.
#ifdef CASSANDRA_HAVE_AVX512
#define CASSANDRA_OF_AVX512(table) \
    if (current_isa() >= Isa::avx512) return avx512::table;
#else
#define CASSANDRA_OF_AVX512(table)
#endif
#ifdef CASSANDRA_HAVE_AVX2
#define CASSANDRA_OF_AVX2(table) \
    if (current_isa() >= Isa::avx2) return avx2::table;
#else
#define CASSANDRA_OF_AVX2(table)
#endif
#define CASSANDRA_RETURN_BEST(table) \
    CASSANDRA_OF_AVX512(table) CASSANDRA_OF_AVX2(table) return portable::table

// The one in use; best_isa() until cassandra_set_isa says otherwise.
Isa current_isa();

}  // namespace cassandra
