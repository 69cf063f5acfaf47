// Kernel dispatch: the instruction sets of native/build.py, selected once and switchable by tests.
#pragma once

// Exported functions, called from Python. All other symbols are hidden.
#define CASSANDRA_API extern "C" __attribute__((visibility("default")))

namespace cassandra {

// Same order as MACHINE_FLAGS in native/build.py. A level includes those before it.
#ifdef __aarch64__
enum class Isa : int { portable = 0, neon = 1, neonbf16 = 2 };
#else
enum class Isa : int { portable = 0, avx2 = 1, avx512 = 2, avx512bf16 = 3 };
#endif

// The best instruction set that both processor and compiler support.
Isa best_isa();

// Return `table` of the best compiled instruction set that is not above the selected one.
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
#ifdef CASSANDRA_HAVE_NEON
#define CASSANDRA_OF_NEON(table) \
    if (current_isa() >= Isa::neon) return neon::table;
#else
#define CASSANDRA_OF_NEON(table)
#endif
#define CASSANDRA_RETURN_BEST(table) \
    CASSANDRA_OF_AVX512(table)       \
    CASSANDRA_OF_AVX2(table) CASSANDRA_OF_NEON(table) return portable::table

// The selected instruction set; best_isa() until cassandra_set_isa is called.
Isa current_isa();

}  // namespace cassandra
