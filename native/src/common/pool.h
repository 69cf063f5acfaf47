// Threads that are kept between jobs, and a barrier that costs about a microsecond.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <sched.h>

namespace cassandra {

// Memory that will be read soon, to be fetched while there is nothing else to do.
struct Ahead {
    const uint8_t* data = nullptr;
    size_t bytes = 0;
};

// A counter that threads wait on: they spin for a while, then sleep.
//
// Spinning pays only while the others run at the same time. A wait that took long all the same
// halves the time that this event spins, a short one restores it: on a machine with more runnable
// threads than cores nobody burns the core that the last thread needs.
class Event {
  public:
    Event();
    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    // Returns when the value is no longer `seen`; asks the memory for `ahead` meanwhile.
    void wait(uint32_t seen, Ahead ahead = {});
    // Adds one, and wakes who sleeps.
    void advance();

  private:
    void sleep(uint32_t seen);

    alignas(64) std::atomic<uint32_t> value_{0};
    std::atomic<uint32_t> sleepers_{0};
    std::atomic<int> spins_;
};

// The caller is thread 0 of every job; the others are kept waiting between jobs.
class Pool {
  public:
    // Threads are pinned to the processors that the process may use, one each, if `pin` says so and
    // there are enough; the caller for the duration of a job alone.
    Pool(int threads, bool pin);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return threads_; }
    // Runs job(thread) on all threads; returns when all have ended. A job must not throw.
    void run(const std::function<void(int)>& job);
    // Within a job, called by all threads: returns when all have called.
    void barrier(Ahead ahead = {});

  private:
    void end();
    void work(int thread);
    void pin_thread(int thread);

    const int threads_;
    std::vector<int> processors_;  // one for each thread; none: not pinned
    const std::function<void(int)>* job_ = nullptr;
    bool ends_ = false;
    Event begun_, passed_;
    alignas(64) std::atomic<int> arrived_{0};
    std::vector<std::thread> workers_;
};

}  // namespace cassandra
