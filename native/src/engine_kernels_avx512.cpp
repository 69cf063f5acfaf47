#include "engine_kernels_code.h"
