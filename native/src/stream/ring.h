// A ring of buffers that a reader thread fills from a file, in an order that repeats every pass.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stream/tensor.h"

namespace cassandra::stream {

// Segments of a tensor that one thread decodes together.
struct Slab {
    const Tensor* tensor;
    Segments segments;
    int64_t order = -1;  // index among the slabs of a pass; -1: all of it is in memory
};

// Statistics of reading so far.
struct Traffic {
    int64_t bytes = 0;
    double seconds = 0;  // during which a read was in progress
};

// The slabs of a pass, one after another, in a few rooms that are reused. A pass ends before the
// slabs of the head if it does not need them. Threads take and release slabs in the order of the
// slabs, up to what barriers leave unordered; so the first slab that is not released is always in a
// room, or is assigned one.
class Ring {
  public:
    explicit Ring(const char* path) : file_(path) {}
    ~Ring();

    const File& file() const { return file_; }
    // Number the slabs, allocate the rooms, and start reading; slabs from `head` on belong to the
    // head. `rooms` is at least 1.
    void start(std::vector<Slab*> slabs, size_t head, int rooms);
    size_t room_bytes() const { return room_bytes_ * entries_.size(); }

    // Begin a pass; one thread calls this before any takes a slab of it.
    void begin_pass(bool with_head);
    // Wait for a slab. Return null after a failure.
    const Regions* take(const Slab& slab);
    void release(const Slab& slab);

    // Stop reading and release all waiting threads.
    void fail(const char* text);
    // Throw std::runtime_error after a failure, or if the file was written to.
    void require_good();
    Traffic traffic();

  private:
    struct Entry {
        Room room;
        Regions regions{};
        int64_t ticket = -1;  // number of the slab in it, counted over all passes
        bool taken = false;   // by the reader, or by a slab
    };

    Entry& entry_of(int64_t ticket) {
        return entries_[static_cast<size_t>(ticket) % entries_.size()];
    }
    void work();
    bool read(const Slab& slab, int64_t ticket);
    bool wants_head();

    const File file_;
    std::vector<Slab*> slabs_;
    size_t head_ = 0, room_bytes_ = 0;
    std::vector<Entry> entries_;
    int64_t base_ = 0, next_base_ = 0;  // ticket of the first slab of this pass, and of the next
    std::deque<bool> heads_;  // of passes that have begun and whose head was not requested yet
    std::string failure_;
    bool failed_ = false, ends_ = false;
    Traffic traffic_;
    std::mutex mutex_;
    std::condition_variable filled_, freed_;
    std::thread reader_;
};

}  // namespace cassandra::stream
