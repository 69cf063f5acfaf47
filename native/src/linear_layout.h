// Tiles of weights: 16 rows of BF16 patterns to bytes and back (docs/native.md has the pictures).
// What a kernel of linear_kernels.h reads, written without regard for speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linear.h"

namespace cassandra {

struct LinearLayout {
    Form form = Form::bf16;
    int64_t features = 0;  // in
    int group = 32;
    bool odd = false;              // draft5, draft4: codes stand for odd multiples
    std::vector<uint16_t> table;   // packed12, packed8: 32 words

    int64_t stored_features() const;  // padded as the form needs it
    size_t tile_bytes() const;
    int32_t bias() const;  // of a code, in units of what a kernel sums up
};

// The layout that holds all values [out, in], Form::bf16 if the form cannot.
LinearLayout choose_layout(const uint16_t* values, int64_t out, int64_t in, Form form, int group);

// Write a tile (zeroed bytes) of `lanes` rows; escapes are appended.
// False if the layout cannot hold a value.
bool pack_tile(const LinearLayout& layout, const uint16_t* values, int lanes, uint8_t* tile,
               std::vector<Escape>& escapes);

// The rows back, escapes excepted (they come out as zeros).
void unpack_tile(const LinearLayout& layout, const uint8_t* tile, int lanes, uint16_t* values);

}  // namespace cassandra
