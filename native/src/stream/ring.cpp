#include "stream/ring.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "common/guard.h"

namespace cassandra::stream {

void Ring::start(std::vector<Slab*> slabs, size_t head, int rooms) {
    slabs_ = std::move(slabs);
    head_ = head;
    for (size_t at = 0; at < slabs_.size(); ++at) {
        slabs_[at]->order = static_cast<int64_t>(at);
        const int64_t bytes = room(*slabs_[at]->tensor, slabs_[at]->segments);
        room_bytes_ = std::max(room_bytes_, static_cast<size_t>(bytes));
    }
    if (slabs_.empty()) return;
    for (int at = 0; at < rooms; ++at) entries_.push_back({Room(room_bytes_)});
    reader_ = std::thread([this] { work(); });
}

Ring::~Ring() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    freed_.notify_all();
    if (reader_.joinable()) reader_.join();
}

void Ring::begin_pass(bool with_head) {
    if (slabs_.empty()) return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        base_ = next_base_;
        next_base_ += static_cast<int64_t>(with_head ? slabs_.size() : head_);
        heads_.push_back(with_head);
    }
    freed_.notify_all();
}

const Regions* Ring::take(const Slab& slab) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t ticket = base_ + slab.order;
    Entry& entry = entry_of(ticket);
    filled_.wait(lock, [&] { return failed_ || entry.ticket == ticket; });
    return failed_ ? nullptr : &entry.regions;
}

void Ring::release(const Slab& slab) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Entry& entry = entry_of(base_ + slab.order);
        entry.ticket = -1, entry.taken = false;
    }
    freed_.notify_all();
}

void Ring::fail(const char* text) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!failed_) failure_ = text;
        failed_ = true;
    }
    filled_.notify_all();
    freed_.notify_all();
}

void Ring::require_good() {
    file_.require_same();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_) throw std::runtime_error(failure_);
}

Traffic Ring::traffic() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return traffic_;
}

// The reader's loop: read pass after pass, as far ahead as rooms are free.
void Ring::work() {
    for (int64_t ticket = 0;;) {
        for (size_t at = 0; at < slabs_.size(); ++at, ++ticket) {
            if (at == head_ && !wants_head()) break;
            if (!read(*slabs_[at], ticket)) return;
        }
        if (head_ == slabs_.size()) wants_head();
    }
}

// Return true if the pass being read has a head; wait until that pass has begun.
bool Ring::wants_head() {
    std::unique_lock<std::mutex> lock(mutex_);
    freed_.wait(lock, [&] { return ends_ || failed_ || !heads_.empty(); });
    if (heads_.empty()) return true;  // read() then stops
    const bool wanted = heads_.front();
    heads_.pop_front();
    return wanted;
}

// Return false if the ring is stopped.
bool Ring::read(const Slab& slab, int64_t ticket) {
    Entry& entry = entry_of(ticket);
    {
        std::unique_lock<std::mutex> lock(mutex_);
        freed_.wait(lock, [&] { return ends_ || failed_ || !entry.taken; });
        if (ends_ || failed_) return false;
        entry.taken = true;
    }
    using namespace std::chrono;
    const auto begun = steady_clock::now();
    Regions regions{};
    try {
        regions = stream::read(file_, *slab.tensor, slab.segments, entry.room.get());
    } catch (const std::exception& error) {
        fail(error.what());
        return false;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        entry.regions = regions, entry.ticket = ticket;
        traffic_.bytes += slab.tensor->absent(slab.segments);
        traffic_.seconds += duration<double>(steady_clock::now() - begun).count();
    }
    filled_.notify_all();
    return true;
}

}  // namespace cassandra::stream
