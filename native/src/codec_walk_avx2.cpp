#include "codec_walk_code.h"
