#include "common/isa.h"

#include <atomic>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cassandra {
namespace {

#ifdef CASSANDRA_HAVE_AVX2
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt");
}
#endif

#ifdef CASSANDRA_HAVE_AVX512
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq") &&
           __builtin_cpu_supports("gfni");
}
#endif

#ifdef CASSANDRA_HAVE_NEON
bool has(int kind, unsigned long wanted) { return (getauxval(kind) & wanted) == wanted; }

// The compiler uses Armv8.2 with these extensions.
bool has_neon() { return has(AT_HWCAP, HWCAP_ATOMICS | HWCAP_ASIMDRDM | HWCAP_ASIMDDP); }
#endif

Isa detect() {
#ifdef CASSANDRA_HAVE_NEONBF16
    if (has_neon() && has(AT_HWCAP2, HWCAP2_I8MM | HWCAP2_BF16)) return Isa::neonbf16;
#endif
#ifdef CASSANDRA_HAVE_NEON
    if (has_neon()) return Isa::neon;
#endif
#ifdef CASSANDRA_HAVE_AVX512BF16
    if (has_avx512() && __builtin_cpu_supports("avx512bf16")) return Isa::avx512bf16;
#endif
#ifdef CASSANDRA_HAVE_AVX512
    if (has_avx512()) return Isa::avx512;
#endif
#ifdef CASSANDRA_HAVE_AVX2
    if (has_avx2()) return Isa::avx2;
#endif
    return Isa::portable;
}

std::atomic<int> chosen{-1};

}  // namespace

Isa best_isa() {
    static const Isa best = detect();
    return best;
}

Isa current_isa() {
    const int isa = chosen.load(std::memory_order_relaxed);
    return isa < 0 ? best_isa() : static_cast<Isa>(isa);
}

}  // namespace cassandra

CASSANDRA_API int cassandra_isa_best() { return static_cast<int>(cassandra::best_isa()); }

CASSANDRA_API int cassandra_isa() { return static_cast<int>(cassandra::current_isa()); }

// The caller (native/library.py) has checked that isa <= cassandra_isa_best().
CASSANDRA_API void cassandra_set_isa(int isa) {
    cassandra::chosen.store(isa, std::memory_order_relaxed);
}
