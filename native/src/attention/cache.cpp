#include "attention/cache.h"

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "linear/linear.h"

namespace cassandra {

Pages::Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes, MADV_HUGEPAGE);  // only a hint: ordinary pages work too
#endif
}

Pages::~Pages() { munmap(data_, bytes_); }

void Pages::release(size_t at, size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t first = (at + page - 1) / page * page, last = (at + bytes) / page * page;
    if (first < last) madvise(static_cast<char*>(data_) + first, last - first, MADV_DONTNEED);
}

void copy_position(const ChunkCache& from, int place, const ChunkCache& to, int new_place) {
    for (int d = 0; d < from.padded; ++d) {
        *to.key(new_place, d) = *from.key(place, d);
        *to.value(new_place, d) = *from.value(place, d);
    }
}

KeyValues::KeyValues(int slots, int layers, int heads, int head_size, int context)
    : layers_(layers), heads_(heads), size_(head_size), padded_(up_to(head_size, 16)),
      chunks_(up_to(context, CHUNK) / CHUNK),
      pages_(sizeof(uint16_t) * chunk_size() * chunks_ * slots),
      sealed_(static_cast<size_t>(slots) * chunks_), written_(sealed_.size()) {}

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
    for (int chunk = 0; chunk * CHUNK < count; ++chunk) {
        sealed_[place(to, chunk)] = sealed_[place(from, chunk)];
        if (sealed_[place(to, chunk)])
            release(to, chunk);
        else
            copy_chunk(to, chunk, numbers(from, chunk));
    }
}

void KeyValues::copy_chunk(int slot, int chunk, const uint16_t* from) {
    std::copy_n(from, chunk_size(), numbers(slot, chunk));
    written_[place(slot, chunk)] = 1;
}

void KeyValues::release(int slot, int chunk) {
    if (!written_[place(slot, chunk)]) return;
    written_[place(slot, chunk)] = 0;
    pages_.release(sizeof(uint16_t) * chunk_size() * place(slot, chunk),
                   sizeof(uint16_t) * chunk_size());
}

int KeyValues::unsealed(int slot, int position) const {
    for (int chunk = 0; chunk < position / CHUNK; ++chunk)
        if (!sealed_[place(slot, chunk)]) return chunk;
    return -1;
}

// Visit the values of a head in a chunk, and their places in the layout of read().
template <class Visit>
void KeyValues::each_value(const ChunkCache& chunk, int layer, int head, Visit visit) const {
    for (bool keys : {true, false}) {
        size_t row = (((keys ? 0 : layers_) + layer) * static_cast<size_t>(CHUNK) * heads_ + head);
        for (int at = 0; at < CHUNK; ++at, row += heads_)
            for (int d = 0; d < size_; ++d) visit(*chunk.number(keys, at, d), row * size_ + d);
    }
}

void KeyValues::read(int slot, int chunk, bool draft, uint16_t* out) const {
    const SealedChunk* sealed = this->sealed(slot, chunk * CHUNK);
    std::vector<uint16_t> room(ChunkCache::size(CHUNK, padded_));
    const ChunkCache opened = {room.data(), room.data() + room.size() / 2, padded_};
    for (int layer = 0; layer < layers_; ++layer)
        for (int head = 0; head < heads_; ++head) {
            if (sealed) open_chunk(*sealed, layer, head, draft, 0, CHUNK, opened);
            const ChunkCache from = sealed ? opened : this->chunk(slot, layer, head, chunk * CHUNK);
            each_value(from, layer, head, [&](uint16_t value, size_t at) { out[at] = value; });
        }
}

void KeyValues::write_chunk(int slot, int chunk, const uint16_t* from) {
    open(slot, chunk * CHUNK, (chunk + 1) * CHUNK);
    for (int layer = 0; layer < layers_; ++layer)
        for (int head = 0; head < heads_; ++head)
            each_value(this->chunk(slot, layer, head, chunk * CHUNK), layer, head,
                       [&](uint16_t& value, size_t at) { value = from[at]; });
}

void KeyValues::put(int slot, int chunk, std::unique_ptr<SealedChunk> made) {
    sealed_[place(slot, chunk)] = std::move(made);
    release(slot, chunk);
}

void KeyValues::open(int slot, int first, int last) {
    for (int chunk = first / CHUNK; chunk * CHUNK < last; ++chunk) {
        written_[place(slot, chunk)] = 1;
        const auto sealed = std::exchange(sealed_[place(slot, chunk)], nullptr);
        if (!sealed) continue;
        for (int layer = 0; layer < layers_; ++layer)
            for (int head = 0; head < heads_; ++head)
                open_chunk(*sealed, layer, head, false, 0, CHUNK,
                           this->chunk(slot, layer, head, chunk * CHUNK));
    }
}

void KeyValues::open_chunk(const SealedChunk& sealed, int layer, int head, bool draft, int first,
                           int last, const ChunkCache& to) const {
    const auto part = [&](bool keys) { return sealed.part(layer * heads_ + head, keys); };
    const int begin = first / BLOCK, end = (last + BLOCK - 1) / BLOCK;
    const auto& kernels = sealed_kernels();
    kernels.open(sealed.form(), part(true), draft, begin, end, to.keys);
    kernels.open(sealed.form(), part(false), draft, begin, end, to.values);
}

size_t KeyValues::held_bytes() const {
    size_t total = 0;
    std::unordered_set<const SealedChunk*> seen;
    for (size_t at = 0; at < sealed_.size(); ++at) {
        if (written_[at]) total += sizeof(uint16_t) * chunk_size();
        if (sealed_[at] && seen.insert(sealed_[at].get()).second) total += sealed_[at]->bytes();
    }
    return total;
}

}  // namespace cassandra
