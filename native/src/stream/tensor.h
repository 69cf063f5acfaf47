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

// A byte range of an array or of a file.
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
    int64_t count;                      // number of values
    std::vector<uint32_t> directory;    // five numbers per segment
    int64_t places[ARRAYS];             // of the arrays in the file
    std::vector<uint8_t> kept[ARRAYS];  // an array in memory, with codec::OVERRUN bytes of padding

    Segments segments_of(int64_t first_value, int64_t last_value) const;
    int64_t values_of(int64_t segment) const;
    Span span(Segments segments, int array) const;  // relative to the array
    // Return the bytes of the arrays that are not in memory.
    int64_t absent(Segments segments) const;
};

// Places of the regions of a run of segments, with codec::OVERRUN bytes of padding.
struct Regions {
    Segments segments;
    const uint8_t* begins[ARRAYS];
};

// Decode segments of tensors, one after another, for one thread.
class TensorDecoder {
  public:
    // Decode the target values of a segment into out. Throws std::runtime_error with the tensor's
    // name for invalid data.
    void decode(const Tensor& tensor, const Regions& regions, int64_t segment, uint16_t* out);

  private:
    std::unique_ptr<codec::Decoder> decoder_;
};

// Read the absent bytes of a run of segments into a room of room(...) bytes; return all regions.
Regions read(const File& file, const Tensor& tensor, Segments segments, uint8_t* room);
int64_t room(const Tensor& tensor, Segments segments);

}  // namespace cassandra::stream
