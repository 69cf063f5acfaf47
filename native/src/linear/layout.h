// Tiles of weights: convert 16 rows of BF16 patterns to bytes and back (docs/software/kernels.md
// has the pictures). The format that linear/kernels.h reads, written without regard for speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linear/linear.h"

namespace cassandra {

// All tiles of a matrix, packed with the layout that holds its values.
struct PackedTiles {
    LinearLayout layout;
    std::vector<uint8_t> bytes;       // [tiles, tile_bytes]
    std::vector<Escape> escapes;      // by tile, then feature
    std::vector<size_t> escape_ends;  // by tile
};

// Pack values [out, in] with this many threads; use Form::bf16 if the form cannot hold them.
PackedTiles pack_tiles(const uint16_t* values, int64_t out, int64_t in, Form form, int group,
                       int threads);

// Call each(place in the tile, place among the tiles) for the lines (64 bytes) of tile `index` of a
// thread's `tiles`. Lines of two tiles alternate; the last tile of an odd number is contiguous.
template <class Each>
void for_lines(const LinearLayout& layout, int64_t index, int64_t tiles, Each each) {
    const size_t count = index % 2 != 0 || index + 1 < tiles ? 2 : 1;
    const size_t place = static_cast<size_t>(index), side = place % count;
    const size_t start = (place - side) * layout.tile_bytes() + 64 * side;
    for (size_t at = 0; at < layout.tile_bytes(); at += 64) each(at, start + count * at);
}

// Pack one or two tiles of Form::bf16 from up to 32 rows of values, in the order of for_lines.
void pack_bf16(const LinearLayout& layout, const uint16_t* values, int64_t rows, uint8_t* lines);

// Unpack a row of a tile, without escapes (which become zeros).
void unpack_row(const LinearLayout& layout, const uint8_t* tile, int lane, uint16_t* values);

// Return the code of feature `k` of a lane (draft5, draft4).
int code_at(const LinearLayout& layout, const uint8_t* tile, int64_t k, int lane);

// Return drafts of scheme exact, t = 4, with midpoints and the largest exponent of each group, of
// the rows of a matrix.
std::vector<uint16_t> draft_values(const uint16_t* values, int64_t out, int64_t in, int group);

}  // namespace cassandra
