// Keys and values of sequences in memory: the layout that attention reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"

namespace cassandra {

inline int up_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Zeros that take memory as they are written, in large pages if the system has them.
class Pages {
  public:
    explicit Pages(size_t bytes);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    template <class T> T* as() const { return static_cast<T*>(data_); }

  private:
    size_t bytes_;
    void* data_;
};

// Keys and values of a head in a chunk, or in whole blocks of one (attention.h).
struct ChunkCache {
    uint16_t* keys;
    uint16_t* values;
    int padded;

    uint16_t* key(int place, int dimension) const {
        const size_t block = static_cast<size_t>(place / BLOCK) * BLOCK * padded;
        return keys + block + BLOCK * (dimension & ~1) + 2 * (place % BLOCK) + dimension % 2;
    }
    uint16_t* value(int place, int dimension) const {
        return values + static_cast<size_t>(place & ~1) * padded + 2 * dimension + place % 2;
    }
    // The part from a place on, a multiple of BLOCK.
    ChunkCache from(int place) const {
        const size_t at = static_cast<size_t>(place) * padded;
        return {keys + at, values + at, padded};
    }
    // Numbers of both in `places` positions.
    static size_t size(int places, int padded) { return static_cast<size_t>(2) * places * padded; }
};

// Copies a position to another place.
void copy_position(const ChunkCache& from, int place, const ChunkCache& to, int new_place);

// Keys and values of all slots, layers and heads: [slots, chunks, layers, heads], each a chunk's
// keys and then its values. So memory is taken chunk by chunk, and a chunk lies in few pages.
class KeyValues {
  public:
    KeyValues(int slots, int layers, int heads, int head_size, int context);

    // Of one head in the chunk that begins at a position.
    ChunkCache chunk(int slot, int layer, int head, int position) const;
    int padded() const { return padded_; }
    // Most chunks of a sequence.
    int chunks() const { return chunks_; }
    // Numbers from a chunk to the one that follows it.
    size_t chunk_size() const { return ChunkCache::size(CHUNK, padded_) * layers_ * heads_; }
    // Bytes that a position of one slot takes.
    size_t position_bytes() const;

    // Writes `size` floats each, rounded to BF16.
    void write(int slot, int layer, int head, int place, const float* key, const float* value);
    // Moves a position of a head to another place of the slot.
    void move(int slot, int layer, int head, int place, int new_place);
    // Copies the first positions of a slot to another one.
    void copy(int from, int to, int count);

  private:
    int layers_, heads_, size_, padded_, chunks_;
    Pages pages_;
};

}  // namespace cassandra
