// Keys and values of sequences in memory: the layout that attention reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <memory>
#include <vector>

#include "attention/attention.h"
#include "attention/sealed.h"

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
    // Gives the memory of whole pages within a range of bytes back; they may read as zeros.
    void release(size_t at, size_t bytes);

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
    uint16_t* number(bool of_keys, int place, int dimension) const {
        return of_keys ? key(place, dimension) : value(place, dimension);
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
//
// A chunk whose positions are final can be sealed (sealed.h), which gives its memory back. Slots
// share sealed chunks. Writing to one opens it: it is in BF16 again, as the target reads it.
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

    // --- sealed chunks ---

    // How chunks are sealed; before the first one is.
    void set_form(const SealedForm& form);
    // The sealed chunk that has a position, or null if it is in BF16.
    const SealedChunk* sealed(int slot, int position) const {
        return sealed_[place(slot, position / CHUNK)].get();
    }
    // The first chunk in BF16 of those before a position, or -1.
    int unsealed(int slot, int position) const;
    // BF16 [keys and values, layers, CHUNK, heads, head size] of a chunk, as target or draft read
    // it.
    void read(int slot, int chunk, bool draft, uint16_t* out) const;
    // Seals layers first..last - 1 of a chunk into `made`; arrays are as those of read().
    void fill(SealedChunk& made, const uint16_t* target, const uint16_t* draft, int first,
              int last) const;
    std::unique_ptr<SealedChunk> new_chunk() const;
    // Puts a sealed chunk in the place of one in BF16.
    void put(int slot, int chunk, std::unique_ptr<SealedChunk> made);
    // Makes positions first..last - 1 ready to be written.
    void open(int slot, int first, int last);
    // Writes the blocks with places first..last - 1 of a sealed chunk in BF16 to their places.
    void open_chunk(const SealedChunk& sealed, int layer, int head, bool draft, int first, int last,
                    const ChunkCache& to) const;
    // Bytes of chunks that were written, or are sealed.
    size_t held_bytes() const;

  private:
    size_t place(int slot, int chunk) const { return static_cast<size_t>(slot) * chunks_ + chunk; }
    uint16_t* numbers(int slot, int chunk) const {
        return pages_.as<uint16_t>() + place(slot, chunk) * chunk_size();
    }

    void write_chunk(int slot, int chunk, const uint16_t* from);
    void release(int slot, int chunk);

    int layers_, heads_, size_, padded_, chunks_;
    Pages pages_;
    SealedForm form_{};
    std::vector<uint32_t> groups_[2];                         // of values and of keys
    std::vector<std::shared_ptr<const SealedChunk>> sealed_;  // [slots, chunks]
    std::vector<uint8_t> written_;                            // whether a chunk is in BF16
};

}  // namespace cassandra
