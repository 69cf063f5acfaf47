// Handles of layers, as Python holds them.
#pragma once

#include "linear/linear.h"

namespace cassandra {

const Linear& linear_of(void* handle);

}  // namespace cassandra
