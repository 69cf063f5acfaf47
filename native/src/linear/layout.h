// Tiles of weights: 16 rows of BF16 patterns to bytes and back (docs/software/kernels.md has the
// pictures). What a kernel of linear/kernels.h reads, written without regard for speed.
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

// The lines (64 bytes) of tile `index` of the `tiles` of a thread: each(place in the tile, place
// among the tiles). Lines of two tiles lie in turn; the last of an odd number lies for itself.
template <class Each>
void for_lines(const LinearLayout& layout, int64_t index, int64_t tiles, Each each) {
    const size_t count = index % 2 != 0 || index + 1 < tiles ? 2 : 1;
    const size_t place = static_cast<size_t>(index), side = place % count;
    const size_t start = (place - side) * layout.tile_bytes() + 64 * side;
    for (size_t at = 0; at < layout.tile_bytes(); at += 64) each(at, start + count * at);
}

// One or two tiles of Form::bf16 from rows of values, up to 32, in the order of for_lines.
void pack_bf16(const LinearLayout& layout, const uint16_t* values, int64_t rows, uint8_t* lines);

// The rows of a tile back, escapes excepted (they come out as zeros).
void unpack_tile(const LinearLayout& layout, const uint8_t* tile, int lanes, uint16_t* values);

}  // namespace cassandra
