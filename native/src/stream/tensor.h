// A packed tensor whose two arrays (docs/format.md, section 5) are in a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codec/decoder.h"
#include "stream/file.h"

namespace cassandra::stream {

constexpr int ARRAYS = 2;  // speculation, verification

// Some bytes of an array, or of a file.
struct Span {
    int64_t offset, bytes;
};

// Consecutive segments, whose regions are consecutive in both arrays.
struct Segments {
    int64_t first, last;
};

struct Tensor {
    std::string name;
    codec::Params params;
    int64_t count;                      // values
    std::vector<uint32_t> directory;    // five numbers for each segment
    int64_t places[ARRAYS];             // of the arrays in the file
    std::vector<uint8_t> kept[ARRAYS];  // an array that is in memory, with codec::OVERRUN beyond it

    Segments segments_of(int64_t first_value, int64_t last_value) const;
    int64_t values_of(int64_t segment) const;
    Span span(Segments segments, int array) const;  // in the array
    // Bytes of the arrays that are not in memory.
    int64_t absent(Segments segments) const;
};

// Where the regions of some segments are, with codec::OVERRUN beyond them.
struct Regions {
    Segments segments;
    const uint8_t* begins[ARRAYS];
};

// Decodes segments of one tensor after another, for one thread.
class TensorDecoder {
  public:
    // Target values of a segment into out. Throws std::runtime_error with the tensor's name if it
    // is broken.
    void decode(const Tensor& tensor, const Regions& regions, int64_t segment, uint16_t* out);

  private:
    std::unique_ptr<codec::Decoder> decoder_;
};

// Reads what is absent of some segments into a room of room(...) bytes, and says where all is.
Regions read(const File& file, const Tensor& tensor, Segments segments, uint8_t* room);
int64_t room(const Tensor& tensor, Segments segments);

}  // namespace cassandra::stream
