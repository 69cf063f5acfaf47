// A thread pool that is kept between jobs, with a barrier that takes about a microsecond.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <sched.h>

namespace cassandra {

// Memory to prefetch while waiting, because it is read next.
struct Ahead {
    const uint8_t* data = nullptr;
    size_t bytes = 0;
};

// A counter that threads wait on: they spin for a while, then sleep.
//
// Spinning pays only if the other threads run at the same time. A wait that still took long halves
// the spin time of this event; a short wait restores it. On a machine with more runnable threads
// than cores, waiting threads thus do not occupy the core that the last thread needs.
class Event {
  public:
    Event();
    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    // Return when the value is no longer `seen`; prefetch `ahead` meanwhile.
    void wait(uint32_t seen, Ahead ahead = {});
    // Increment the value and wake all waiting threads.
    void advance();

  private:
    void sleep(uint32_t seen);

    alignas(64) std::atomic<uint32_t> value_{0};
    std::atomic<uint32_t> sleepers_{0};
    std::atomic<int> spins_;
};

// A thread's items, first..last - 1 of `count`.
struct Share {
    int first, last;
    Share(int count, int thread, int threads)
        : first(static_cast<int>(static_cast<int64_t>(count) * thread / threads)),
          last(static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads)) {}
};

// The caller is thread 0 of every job; the other threads wait between jobs.
class Pool {
  public:
    // With `pin`, each thread is pinned to one of the process's processors if there are enough of
    // them; the caller only for the duration of a job.
    Pool(int threads, bool pin);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return threads_; }
    // Run job(thread) on all threads; return when all have ended. A job must not throw.
    void run(const std::function<void(int)>& job);
    // Run a job that may throw and has no barrier; throw one of its exceptions when all have ended.
    void run_guarded(const std::function<void(int)>& job);
    // Called by all threads of a job: return when all have called.
    void barrier(Ahead ahead = {});

  private:
    void end();
    void work(int thread);
    void pin_thread(int thread);

    const int threads_;
    std::vector<int> processors_;  // one for each thread; empty: not pinned
    const std::function<void(int)>* job_ = nullptr;
    bool ends_ = false;
    Event begun_, passed_;
    alignas(64) std::atomic<int> arrived_{0};
    std::vector<std::thread> workers_;
};

}  // namespace cassandra
