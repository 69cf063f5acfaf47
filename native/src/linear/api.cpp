// Entry points for native/linear.py: a layer with streams of its own, for tests and measurements.
#include <cstring>
#include <memory>

#include "common/guard.h"
#include "common/isa.h"
#include "linear/api.h"

using cassandra::attempt;
using cassandra::Form;
using cassandra::Input;
using cassandra::Linear;
using cassandra::Streams;

namespace {

struct Layer {
    std::unique_ptr<Streams> own;  // unless it shares some
    std::unique_ptr<Linear> linear;
};

Layer* layer(void* handle) { return static_cast<Layer*>(handle); }

}  // namespace

const Linear& cassandra::linear_of(void* handle) { return *layer(handle)->linear; }

// Streams that layers share: they must be freed after those. Null if there is no memory.
CASSANDRA_API void* cassandra_streams_new(int threads) {
    Streams* streams = nullptr;
    attempt([&] { streams = new Streams(threads); });
    return streams;
}

CASSANDRA_API void cassandra_streams_free(void* streams) { delete static_cast<Streams*>(streams); }

// A handle, or null. Without streams the layer has its own, for `threads`.
CASSANDRA_API void* cassandra_linear_new(const uint16_t* values, int64_t out, int64_t in, int form,
                                         int group, void* streams, int threads) {
    Layer* made = nullptr;
    attempt([&] {
        auto result = std::make_unique<Layer>();
        if (!streams) result->own = std::make_unique<Streams>(threads);
        Streams& all = streams ? *static_cast<Streams*>(streams) : *result->own;
        result->linear = Linear::create(values, out, in, static_cast<Form>(form), group, all);
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

// y [rows, out] = x [rows, in], thread by thread; false if it failed.
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

// The input of a layer as it is prepared, row 0: values as stored, then one scale per group. False
// if it failed.
CASSANDRA_API bool cassandra_linear_prepare(void* handle, const float* x, void* values,
                                            float* scales) {
    return attempt([&] {
        const Linear& linear = *layer(handle)->linear;
        const auto kind = linear.input();
        const auto number = static_cast<int>(kind);
        Input input(linear.in_features());
        input.prepare(kind, 0, x);
        const size_t width = number == 0 ? 4 : number <= 2 ? 1 : 2;
        std::memcpy(values, input.values(kind), width * static_cast<size_t>(input.padded()));
        const int64_t group = number == 2 || number == 4 ? 64 : 32;
        std::memcpy(scales, input.scales(kind), 4 * static_cast<size_t>(input.padded() / group));
    });
}
