#include "common/pool.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cassandra {
namespace {

constexpr int SPINS = 4000;  // maximum pauses: 40 to 200 microseconds, by processor
constexpr size_t LINE = 64;
constexpr int FEWEST = 32;
constexpr std::chrono::microseconds SHORT(300);  // a sleep this short should have been a spin

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" : : : "memory");  // `yield` takes no time on most cores
#endif
}

uint32_t* address(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

std::vector<int> allowed_processors() {
    cpu_set_t set;
    std::vector<int> found;
    if (sched_getaffinity(0, sizeof set, &set)) return found;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
    return found;
}

}  // namespace

Event::Event() : spins_(SPINS) {}

void Event::wait(uint32_t seen, Ahead ahead) {
    const int spins = spins_.load(std::memory_order_relaxed);
    for (int i = 0; i < spins; ++i) {
        if (value() != seen) return;
        if (ahead.bytes) {
            __builtin_prefetch(ahead.data, 0, 2);
            ahead.data += LINE;
            ahead.bytes -= LINE;
        } else {
            pause();
        }
    }
    const auto slept = std::chrono::steady_clock::now();
    sleep(seen);
    const bool late = std::chrono::steady_clock::now() - slept > SHORT;
    spins_.store(late ? std::max(spins / 2, FEWEST) : SPINS, std::memory_order_relaxed);
}

void Event::sleep(uint32_t seen) {
    for (int i = 0; i < 2; ++i) {
        sched_yield();
        if (value() != seen) return;
    }
    sleepers_.fetch_add(1);
    while (value_.load() == seen)
        syscall(SYS_futex, address(value_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1);
}

void Event::advance() {
    value_.fetch_add(1);
    if (sleepers_.load())
        syscall(SYS_futex, address(value_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Pool::Pool(int threads, bool pin) : threads_(threads) {
    if (pin) processors_ = allowed_processors();
    if (static_cast<int>(processors_.size()) < threads) processors_.clear();
    try {
        for (int thread = 1; thread < threads; ++thread)
            workers_.emplace_back([this, thread] { work(thread); });
    } catch (...) {
        end();  // ends the threads that have started
        throw;
    }
}

Pool::~Pool() { end(); }

void Pool::end() {
    ends_ = true;
    begun_.advance();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::pin_thread(int thread) {
    if (processors_.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processors_[thread], &set);
    sched_setaffinity(0, sizeof set, &set);
}

void Pool::run(const std::function<void(int)>& job) {
    cpu_set_t before;
    const bool pinned = !processors_.empty() && !sched_getaffinity(0, sizeof before, &before);
    if (pinned) pin_thread(0);
    job_ = &job;
    begun_.advance();
    job(0);
    barrier();
    if (pinned) sched_setaffinity(0, sizeof before, &before);
}

void Pool::run_guarded(const std::function<void(int)>& job) {
    std::vector<std::exception_ptr> thrown(threads_);
    run([&](int thread) {
        try {
            job(thread);
        } catch (...) {
            thrown[thread] = std::current_exception();
        }
    });
    for (const auto& each : thrown)
        if (each) std::rethrow_exception(each);
}

void Pool::work(int thread) {
    pin_thread(thread);
    for (uint32_t seen = 0;; ++seen) {
        begun_.wait(seen);
        if (ends_) return;
        (*job_)(thread);
        barrier();
    }
}

void Pool::barrier(Ahead ahead) {
    if (threads_ == 1) return;
    const uint32_t seen = passed_.value();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
        arrived_.store(0, std::memory_order_relaxed);
        passed_.advance();
    } else {
        passed_.wait(seen, ahead);
    }
}

}  // namespace cassandra
