// Tiles of weights: 16 rows of BF16 patterns to bytes and back (docs/native.md has the pictures).
// What a kernel of linear/kernels.h reads, written without regard for speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linear/linear.h"

namespace cassandra {

// All tiles of a matrix, as packed with the layout that holds its values.
struct PackedTiles {
    LinearLayout layout;
    std::vector<uint8_t> bytes;       // [tiles, tile_bytes]
    std::vector<Escape> escapes;      // by tile, then feature
    std::vector<size_t> escape_ends;  // by tile
};

// Pack values [out, in], in Form::bf16 if the form cannot hold them, on that many threads.
PackedTiles pack_tiles(const uint16_t* values, int64_t out, int64_t in, Form form, int group,
                       int threads);

// The rows of a tile back, escapes excepted (they come out as zeros).
void unpack_tile(const LinearLayout& layout, const uint8_t* tile, int lanes, uint16_t* values);

}  // namespace cassandra
