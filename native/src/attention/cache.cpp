#include "attention/cache.h"

#include <algorithm>
#include <new>

#include <sys/mman.h>

#include "linear/linear.h"

namespace cassandra {

Pages::Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes, MADV_HUGEPAGE);  // a hint: ordinary pages serve as well
#endif
}

Pages::~Pages() { munmap(data_, bytes_); }

void copy_position(const ChunkCache& from, int place, const ChunkCache& to, int new_place) {
    for (int d = 0; d < from.padded; ++d) {
        *to.key(new_place, d) = *from.key(place, d);
        *to.value(new_place, d) = *from.value(place, d);
    }
}

KeyValues::KeyValues(int slots, int layers, int heads, int head_size, int context)
    : layers_(layers), heads_(heads), size_(head_size), padded_(up_to(head_size, 16)),
      chunks_(up_to(context, CHUNK) / CHUNK),
      pages_(sizeof(uint16_t) * chunk_size() * chunks_ * slots) {}

size_t KeyValues::position_bytes() const { return sizeof(uint16_t) * chunk_size() / CHUNK; }

ChunkCache KeyValues::chunk(int slot, int layer, int head, int position) const {
    const size_t number = static_cast<size_t>(slot) * chunks_ + position / CHUNK;
    const size_t place = (number * layers_ + layer) * heads_ + head;
    uint16_t* keys = pages_.as<uint16_t>() + place * ChunkCache::size(CHUNK, padded_);
    return {keys, keys + ChunkCache::size(CHUNK, padded_) / 2, padded_};
}

void KeyValues::write(int slot, int layer, int head, int place, const float* key,
                      const float* value) {
    const ChunkCache chunk = this->chunk(slot, layer, head, place);
    for (int d = 0; d < size_; ++d) {
        *chunk.key(place % CHUNK, d) = to_bf16(key[d]);
        *chunk.value(place % CHUNK, d) = to_bf16(value[d]);
    }
}

void KeyValues::move(int slot, int layer, int head, int place, int new_place) {
    copy_position(chunk(slot, layer, head, place), place % CHUNK,
                  chunk(slot, layer, head, new_place), new_place % CHUNK);
}

void KeyValues::copy(int from, int to, int count) {
    const size_t numbers = chunk_size() * (up_to(count, CHUNK) / CHUNK);
    std::copy_n(chunk(from, 0, 0, 0).keys, numbers, chunk(to, 0, 0, 0).keys);
}

}  // namespace cassandra
