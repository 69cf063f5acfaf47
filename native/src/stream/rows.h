// Rows of a matrix, decoded as a pass reaches them.
#pragma once

#include <vector>

#include "stream/source.h"

namespace cassandra::stream {

// Each thread has its own slabs, so that it decodes what it multiplies into its own cache. A
// segment with rows of two threads is in slabs of both.
class StreamedRows final : public RowSource {
  public:
    StreamedRows(Source& source, const Tensor& tensor, int64_t first_value, int64_t out, int64_t in)
        : source_(source), tensor_(tensor), first_value_(first_value), out_(out), in_(in),
          slabs_(source.workers_.size()) {}

    // Cut slabs of about `slab` bytes, and append those that must be read to an order: the first
    // slab of each thread, then the second of each, and so on.
    void cut(int64_t slab, std::vector<Slab*>& order);
    // Maximum values that a worker holds, and bytes of two tiles of them.
    int64_t most_values() const { return 2 * kTile * in_ + 2 * tensor_.params.segment; }
    int64_t line_bytes() const;

    uint8_t* begin(int thread) override;
    const uint16_t* rows(int thread, int64_t first, int64_t last) override;

  private:
    int64_t value(int64_t row) const { return first_value_ + row * in_; }
    bool decode_next(Worker& own, const std::vector<Slab>& slabs);

    Source& source_;
    const Tensor& tensor_;
    const int64_t first_value_, out_, in_;
    std::vector<std::vector<Slab>> slabs_;  // by thread
};

}  // namespace cassandra::stream
