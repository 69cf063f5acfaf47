// Timing of linear layers: all threads go through their parts of all layers, as a pass does.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "common/isa.h"
#include "linear/api.h"
#include "linear/linear.h"

namespace cassandra {
namespace {

// Threads that meet before and after each repetition. They spin: a measurement owns the machine.
class Meeting {
  public:
    explicit Meeting(int count) : count_(count) {}

    void wait() {
        const int round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
        } else {
            for (int i = 0; round_.load(std::memory_order_acquire) == round; ++i)
                if (i > 10000) std::this_thread::yield();
        }
    }

  private:
    const int count_;
    std::atomic<int> arrived_{0}, round_{0};
};

void pin(int thread) {
#ifdef __linux__
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    int place = thread % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || place--) continue;
        CPU_ZERO(&mine);
        CPU_SET(cpu, &mine);
        pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);  // a wish
        return;
    }
#else
    (void)thread;
#endif
}

// Seconds of each repetition of work(thread).
template <class Work>
void time_rounds(int threads, int repeats, double* seconds, Work work) {
    Meeting meeting(threads);
    const auto body = [&](int thread) {
        pin(thread);
        for (int i = 0; i < repeats; ++i) {
            meeting.wait();
            const auto start = std::chrono::steady_clock::now();
            work(thread);
            meeting.wait();
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            if (thread == 0) seconds[i] = time.count();
        }
    };
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) all.emplace_back(body, thread);
    for (auto& one : all) one.join();
}

std::atomic<uint64_t> kept{0};  // so that what is read is used

void read_all(const uint8_t* data, size_t bytes) {
    typedef uint64_t Words __attribute__((vector_size(16)));
    Words sums[4] = {};
    for (size_t at = 0; at + 64 <= bytes; at += 64) {
        __builtin_prefetch(data + at + 4096, 0, 3);
        for (int i = 0; i < 4; ++i) {
            Words words;
            std::memcpy(&words, data + at + 16 * static_cast<size_t>(i), 16);
            sums[i] ^= words;
        }
    }
    const Words all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    kept += all[0] ^ all[1];
}

}  // namespace
}  // namespace cassandra

// Seconds [repeats] of a pass through layers [count], which were made for `threads` threads.
CASSANDRA_API void cassandra_linear_time(void* const* handles, int count, int rows, int threads,
                                         int repeats, double* seconds) {
    using namespace cassandra;
    std::vector<std::unique_ptr<Input>> inputs;
    std::vector<std::vector<float>> outputs;
    for (int i = 0; i < count; ++i) {
        const Linear& linear = linear_of(handles[i]);
        inputs.push_back(std::make_unique<Input>(linear.in_features()));
        outputs.emplace_back(static_cast<size_t>(kMaxRows * linear.out_features()));
        std::vector<float> x(static_cast<size_t>(linear.in_features()));
        for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 17) - 8.0F;
        for (int row = 0; row < rows; ++row) inputs.back()->prepare(linear.input(), row, x.data());
    }
    time_rounds(threads, repeats, seconds, [&](int thread) {
        for (int i = 0; i < count; ++i) {
            const Linear& linear = linear_of(handles[i]);
            linear.multiply(thread, rows, *inputs[static_cast<size_t>(i)],
                            outputs[static_cast<size_t>(i)].data(), linear.out_features());
        }
    });
}

// Seconds [repeats] of reading `bytes` of memory, divided among threads.
CASSANDRA_API void cassandra_read_time(int64_t bytes, int threads, int repeats, double* seconds) {
    using namespace cassandra;
    Streams streams(threads);
    const size_t part = static_cast<size_t>(bytes) / static_cast<size_t>(threads);
    std::vector<uint8_t*> data;
    for (int thread = 0; thread < threads; ++thread) {
        data.push_back(streams.reserve(thread, part));
        std::memset(data.back(), 1 + thread, part);
    }
    time_rounds(threads, repeats, seconds,
                [&](int thread) { read_all(data[static_cast<size_t>(thread)], part); });
}

CASSANDRA_API void cassandra_linear_set_prefetch(int form, int64_t bytes) {
    cassandra::set_prefetch_distance(static_cast<cassandra::Form>(form), bytes);
}
