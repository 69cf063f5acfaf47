#include "codec_kernels_code.h"
