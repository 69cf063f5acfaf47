// KV cache: the memory layout of keys and values that attention reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <memory>
#include <vector>

#include "attention/attention.h"
#include "attention/sealed.h"

namespace cassandra {

inline int up_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Zeroed memory that is allocated when written, in large pages if the system supports them.
class Pages {
  public:
    explicit Pages(size_t bytes);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    template <class T> T* as() const { return static_cast<T*>(data_); }
    // Return the memory of whole pages within a byte range to the system; they may read as zeros.
    void release(size_t at, size_t bytes);

  private:
    size_t bytes_;
    void* data_;
};

// Keys and values of one head in a chunk, or in whole blocks of one (attention.h).
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
    uint16_t* number(bool of_keys, int place, int dimension) const {
        return of_keys ? key(place, dimension) : value(place, dimension);
    }
    // Return the part from a place on, a multiple of BLOCK.
    ChunkCache from(int place) const {
        const size_t at = static_cast<size_t>(place) * padded;
        return {keys + at, values + at, padded};
    }
    // Return the number of elements of keys and values in `places` positions.
    static size_t size(int places, int padded) { return static_cast<size_t>(2) * places * padded; }
};

// Copy a position to another place.
void copy_position(const ChunkCache& from, int place, const ChunkCache& to, int new_place);

// Keys and values of all slots, layers and heads: [slots, chunks, layers, heads], each with a
// chunk's keys and then its values. Memory is thus allocated chunk by chunk, and a chunk spans few
// pages.
//
// A chunk whose positions are final can be sealed (sealed.h), which frees its BF16 memory. Slots
// share sealed chunks. Writing to a sealed chunk opens it: it returns to BF16, with the target's
// values.
class KeyValues {
  public:
    KeyValues(int slots, int layers, int heads, int head_size, int context);

    // Return one head of the chunk that begins at a position.
    ChunkCache chunk(int slot, int layer, int head, int position) const;
    int layers() const { return layers_; }
    int heads() const { return heads_; }
    int head_size() const { return size_; }
    int padded() const { return padded_; }
    // Maximum chunks of a sequence.
    int chunks() const { return chunks_; }
    // Number of elements from a chunk to the next one.
    size_t chunk_size() const { return ChunkCache::size(CHUNK, padded_) * layers_ * heads_; }
    // Bytes of one position in one slot.
    size_t position_bytes() const;

    // Write `size` floats of a key and a value, rounded to BF16.
    void write(int slot, int layer, int head, int place, const float* key, const float* value);
    // Move a position of one head to another place of the slot.
    void move(int slot, int layer, int head, int place, int new_place);
    // Copy the first positions of a slot to another one.
    void copy(int from, int to, int count);

    // --- sealed chunks ---

    // Return the sealed chunk that contains a position, or null if it is in BF16.
    const SealedChunk* sealed(int slot, int position) const {
        return sealed_[place(slot, position / CHUNK)].get();
    }
    // Return the first chunk in BF16 of those before a position, or -1.
    int unsealed(int slot, int position) const;
    // Read BF16 [keys and values, layers, CHUNK, heads, head size] of a chunk, as target or draft.
    void read(int slot, int chunk, bool draft, uint16_t* out) const;
    // Write a chunk in the same layout.
    void write_chunk(int slot, int chunk, const uint16_t* from);
    // Replace a chunk in BF16 by a sealed one.
    void put(int slot, int chunk, std::unique_ptr<SealedChunk> made);
    // Make positions first..last - 1 writable.
    void open(int slot, int first, int last);
    // Write the blocks with places first..last - 1 of a sealed chunk to their places in BF16.
    void open_chunk(const SealedChunk& sealed, int layer, int head, bool draft, int first, int last,
                    const ChunkCache& to) const;
    // Bytes of chunks that are written or sealed.
    size_t held_bytes() const;

  private:
    size_t place(int slot, int chunk) const { return static_cast<size_t>(slot) * chunks_ + chunk; }
    uint16_t* numbers(int slot, int chunk) const {
        return pages_.as<uint16_t>() + place(slot, chunk) * chunk_size();
    }

    template <class Visit>
    void each_value(const ChunkCache& chunk, int layer, int head, Visit visit) const;
    void copy_chunk(int slot, int chunk, const uint16_t* from);
    void release(int slot, int chunk);

    int layers_, heads_, size_, padded_, chunks_;
    Pages pages_;
    std::vector<std::shared_ptr<const SealedChunk>> sealed_;  // [slots, chunks]
    std::vector<uint8_t> written_;                            // true if a chunk is in BF16
};

}  // namespace cassandra
