#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "linear/linear.h"

namespace cassandra {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kChunk = size_t{64} << 20;  // bytes reserved at a time, allocated when written

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Map whole huge pages, aligned to their size.
uint8_t* map(size_t size) {
    void* raw = mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    auto* start = static_cast<uint8_t*>(raw);
    const size_t before =
        round_up(reinterpret_cast<uintptr_t>(raw), kHuge) - reinterpret_cast<uintptr_t>(raw);
    if (before) munmap(start, before);
    if (kHuge - before) munmap(start + before + size, kHuge - before);
#ifdef MADV_HUGEPAGE
    madvise(start + before, size, MADV_HUGEPAGE);  // only a hint: ordinary pages work too
#endif
    return start + before;
}

}  // namespace

Streams::Streams(int threads) : chunks_(static_cast<size_t>(std::max(threads, 1))) {}

Streams::~Streams() {
    for (const auto& chunks : chunks_)
        for (const Chunk& chunk : chunks) munmap(chunk.start, chunk.size);
}

uint8_t* Streams::reserve(int thread, size_t bytes) {
    auto& chunks = chunks_.at(static_cast<size_t>(thread));
    bytes = round_up(std::max<size_t>(bytes, 1), 64);
    if (chunks.empty() || chunks.back().size - chunks.back().used < bytes) {
        const size_t size = round_up(std::max(bytes, kChunk), kHuge);
        chunks.reserve(chunks.size() + 1);
        chunks.push_back({map(size), size, 0});
    }
    Chunk& chunk = chunks.back();
    uint8_t* result = chunk.start + chunk.used;
    chunk.used += bytes;
    used_ += bytes;
    return result;
}

}  // namespace cassandra
