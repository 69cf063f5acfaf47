// Entry points for native/linear.py: layers for tests and measurements.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "common/guard.h"
#include "common/isa.h"
#include "common/pool.h"
#include "linear/linear.h"

using cassandra::attempt;
using cassandra::Form;
using cassandra::Input;
using cassandra::Linear;
using cassandra::Streams;

namespace {

struct Layer {
    std::unique_ptr<Streams> own;  // null if streams are shared
    std::unique_ptr<Linear> linear;
};

Layer* layer(void* handle) { return static_cast<Layer*>(handle); }

// Time each repetition of work(thread) on threads pinned to one core each, in seconds.
template <class Work> void time_rounds(int threads, int repeats, double* seconds, Work work) {
    cassandra::Pool pool(threads, true);
    pool.run([&](int thread) {
        for (int i = 0; i < repeats; ++i) {
            pool.barrier();
            const auto start = std::chrono::steady_clock::now();
            work(thread);
            pool.barrier();
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            if (thread == 0) seconds[i] = time.count();
        }
    });
}

std::atomic<uint64_t> kept{0};  // keeps the reads from being optimized away

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

// Returns the bytes of a matrix in a form, without escapes.
CASSANDRA_API int64_t cassandra_linear_room(int form, int group, int64_t out, int64_t in) {
    cassandra::LinearLayout layout;
    layout.form = static_cast<Form>(form);
    layout.features = in;
    layout.group = group;
    const int64_t tiles = (out + cassandra::kTile - 1) / cassandra::kTile;
    return tiles * static_cast<int64_t>(layout.tile_bytes());
}

// Creates streams that layers share; free them after the layers. Returns null if out of memory.
CASSANDRA_API void* cassandra_streams_new(int threads) {
    Streams* streams = nullptr;
    attempt([&] { streams = new Streams(threads); });
    return streams;
}

CASSANDRA_API void cassandra_streams_free(void* streams) { delete static_cast<Streams*>(streams); }

// Returns a handle, or null. Without streams the layer has its own, for `threads`. A draft is the
// first plane of Form::planes; free it after the layer.
CASSANDRA_API void* cassandra_linear_new(const uint16_t* values, int64_t out, int64_t in, int form,
                                         int group, void* streams, int threads, void* draft) {
    Layer* made = nullptr;
    attempt([&] {
        auto result = std::make_unique<Layer>();
        if (!streams) result->own = std::make_unique<Streams>(threads);
        Streams& all = streams ? *static_cast<Streams*>(streams) : *result->own;
        const Linear* plane = draft ? layer(draft)->linear.get() : nullptr;
        result->linear =
            Linear::create(values, out, in, static_cast<Form>(form), group, all, plane);
        made = result.release();
    });
    return made;
}

CASSANDRA_API void cassandra_linear_free(void* handle) { delete layer(handle); }

CASSANDRA_API int cassandra_linear_form(void* handle) {
    return static_cast<int>(layer(handle)->linear->form());
}

CASSANDRA_API int64_t cassandra_linear_bytes(void* handle) {
    return static_cast<int64_t>(layer(handle)->linear->bytes());
}

CASSANDRA_API int64_t cassandra_linear_escapes(void* handle) {
    return static_cast<int64_t>(layer(handle)->linear->escapes());
}

CASSANDRA_API void cassandra_linear_values(void* handle, uint16_t* result) {
    layer(handle)->linear->values(result);
}

// Computes y [rows, out] = x [rows, in], thread by thread; returns false on failure.
CASSANDRA_API bool cassandra_linear_multiply(void* handle, int rows, const float* x, float* y) {
    return attempt([&] {
        const Linear& linear = *layer(handle)->linear;
        Input input(linear.in_features());
        for (int row = 0; row < rows; ++row)
            input.prepare(linear.input(), row, x + row * linear.in_features());
        for (int thread = 0; thread < linear.threads(); ++thread)
            linear.multiply(thread, rows, input, y, linear.out_features());
    });
}

// Times passes through layers [count] made for `threads` threads, in seconds [repeats]; returns
// false on failure.
CASSANDRA_API bool cassandra_linear_time(void* const* handles, int count, int rows, int threads,
                                         int repeats, double* seconds) {
    return attempt([&] {
        std::vector<std::unique_ptr<Input>> inputs;
        std::vector<std::vector<float>> outputs;
        for (int i = 0; i < count; ++i) {
            const Linear& linear = *layer(handles[i])->linear;
            inputs.push_back(std::make_unique<Input>(linear.in_features()));
            outputs.emplace_back(static_cast<size_t>(rows * linear.out_features()));
            std::vector<float> x(static_cast<size_t>(linear.in_features()));
            for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 17) - 8.0F;
            for (int row = 0; row < rows; ++row)
                inputs.back()->prepare(linear.input(), row, x.data());
        }
        time_rounds(threads, repeats, seconds, [&](int thread) {
            for (int i = 0; i < count; ++i) {
                const Linear& linear = *layer(handles[i])->linear;
                linear.multiply(thread, rows, *inputs[static_cast<size_t>(i)],
                                outputs[static_cast<size_t>(i)].data(), linear.out_features());
            }
        });
    });
}

// Times reading `bytes` of memory, divided among threads, in seconds [repeats].
CASSANDRA_API bool cassandra_read_time(int64_t bytes, int threads, int repeats, double* seconds) {
    return attempt([&] {
        Streams streams(threads);
        const size_t part = static_cast<size_t>(bytes) / static_cast<size_t>(threads);
        std::vector<uint8_t*> data;
        for (int thread = 0; thread < threads; ++thread) {
            data.push_back(streams.reserve(thread, part));
            std::memset(data.back(), 1 + thread, part);
        }
        time_rounds(threads, repeats, seconds,
                    [&](int thread) { read_all(data[static_cast<size_t>(thread)], part); });
    });
}
