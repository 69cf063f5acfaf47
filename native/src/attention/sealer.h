// Sealing of chunks: what a draft reads of committed keys and values (docs/format.md).
//
// The codec encodes each head's keys and values and decodes what a draft reads. Groups and vectors
// lie within a head and within a block, so blocks and segments do not change these values.
// In scheme unary a chunk's keys of all layers share a codebook, and so do its values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/cache.h"
#include "codec/codec.h"
#include "common/pool.h"

namespace cassandra {

// Format of sealed chunks. Fields, order and types are those of native/key_values.py.
struct SealedFormat {
    codec::Params params;  // without segment and codebook
    int32_t by_token;      // 1: the values of a position follow each other, 0: those of a dimension
    int32_t whole;         // 1: a draft reads the target's values
    int32_t group;         // values of a group in the planes
    int32_t compared;      // heads whose values of a position are compared
    int32_t keep;          // number of these values that a draft reads, the largest
};

class ChunkSealer {
  public:
    ChunkSealer(const SealedFormat& format, KeyValues& cache, Pool& pool);

    // Seal the chunks of a slot that end before a position; the positions before it are final. No
    // other job may be running. Throws std::bad_alloc, which leaves a chunk in BF16.
    void seal(int slot, int position);

  private:
    codec::Params params_of(int slot, int chunk, bool keys);
    void fill(SealedChunk& made, int slot, int chunk, bool keys, const codec::Params& params,
              int thread) const;

    const SealedFormat format_;
    const SealedForm form_;
    std::vector<uint32_t> groups_[2];  // of values and of keys
    KeyValues& cache_;
    Pool& pool_;
};

}  // namespace cassandra
