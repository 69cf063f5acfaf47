// Parts of a file that a thread of its own reads ahead, in an order that passes repeat.
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

// Segments of a tensor that one thread decodes in one go.
struct Slab {
    const Tensor* tensor;
    Segments segments;
    int64_t order = -1;  // among the slabs of a pass; none: all of it is in memory
};

// What was read so far.
struct Traffic {
    int64_t bytes = 0;
    double seconds = 0;  // during which something was being read
};

// The slabs of a pass, one after another, in a few rooms that are used in turn. A pass ends before
// the slabs of the head if it does not need them. Threads take and release slabs in the order of
// the slabs, as far as barriers order what they do; so the first slab that was not released is
// always in a room, or has one.
class Ring {
  public:
    explicit Ring(const char* path) : file_(path) {}
    ~Ring();

    const File& file() const { return file_; }
    // Gives each slab its order, makes the rooms, and begins to read; those from `head` on are of
    // the head. `rooms` is at least 1.
    void start(std::vector<Slab*> slabs, size_t head, int rooms);
    size_t room_bytes() const { return room_bytes_ * slots_.size(); }

    // A pass begins; one thread says so before any takes a slab of it.
    void begin_pass(bool with_head);
    // Waits for a slab. Null if something failed.
    const Regions* take(const Slab& slab);
    void release(const Slab& slab);

    // Nothing is read any more, and all that wait go on.
    void fail(const char* text);
    // Throws std::runtime_error if something failed, or the file was written to.
    void require_good();
    Traffic traffic();

  private:
    struct Slot {
        Room room;
        Regions regions{};
        int64_t ticket = -1;  // which slab is in it, counted over all passes
        bool taken = false;   // by the reader, or by a slab
    };

    Slot& slot_of(int64_t ticket) { return slots_[static_cast<size_t>(ticket) % slots_.size()]; }
    void work();
    bool read(const Slab& slab, int64_t ticket);
    bool wants_head();

    const File file_;
    std::vector<Slab*> slabs_;
    size_t head_ = 0, room_bytes_ = 0;
    std::vector<Slot> slots_;
    int64_t base_ = 0, next_base_ = 0;  // ticket of the first slab of this pass, and of the next
    std::deque<bool> heads_;            // of passes that began and whose head was not asked for yet
    std::string failure_;
    bool failed_ = false, ends_ = false;
    Traffic traffic_;
    std::mutex mutex_;
    std::condition_variable filled_, freed_;
    std::thread reader_;
};

}  // namespace cassandra::stream
