// The kernels of an instruction set, by form. Included only by the kernel files.
#pragma once

#include "linear/kernels.h"
#include "linear/plane_kernels.h"

namespace cassandra {
namespace CASSANDRA_ISA {

template <class V> constexpr LinearKernels make_kernels() {
    constexpr auto bf16 = run<Words<V, Bf16, Halves>>, packed12 = run<Words<V, Packed12, Halves>>,
                   packed8 = run<Words<V, Packed8, Halves>>;
    return {{{bf16, bf16},
             {packed12, packed12},
             {packed8, packed8},
             {run<Codes<V, 32, Draft5>>, run<Codes<V, 64, Draft5>>},
             {run<Codes<V, 32, Draft4>>, run<Codes<V, 64, Draft4>>},
             {run<Codes<V, 32, Mx>>, run<Codes<V, 64, Mx>>},
             {run_planes<V, 5, Halves>, run_planes<V, 4, Halves>}}};
}

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
