// What native/engine_binding.py calls. Arguments have been checked there.
#include <cstring>
#include <exception>
#include <string>

#include "common/isa.h"
#include "engine/engine.h"

using namespace cassandra;

namespace {

thread_local std::string last_error;

// Runs what may throw; false, and a text for cassandra_engine_error(), if it did.
template <typename Work>
bool attempt(Work work) {
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
        last_error = "memory";
    } catch (const std::exception& error) {
        last_error = error.what();
    }
    return false;
}

}  // namespace

CASSANDRA_API const char* cassandra_engine_error() { return last_error.c_str(); }

CASSANDRA_API void* cassandra_engine_new(const ModelShape* shape, const float* frequencies,
                                         float rope_scale, const uint16_t* embedding, int threads,
                                         int pin) {
    Engine* engine = nullptr;
    attempt([&] {
        engine = new Engine(*shape, frequencies, rope_scale, embedding, threads, pin != 0);
    });
    return engine;
}

CASSANDRA_API void cassandra_engine_free(void* engine) { delete static_cast<Engine*>(engine); }

// Layer `layers` is the head. `form` and `group` are those of linear/linear.h; returns the form
// that it got, or -1.
CASSANDRA_API int cassandra_engine_set_matrix(void* engine, int layer, int slot, int draft,
                                              const uint16_t* values, int outputs, int inputs,
                                              int form, int group) {
    int got = -1;
    attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        const Pass pass = draft ? Pass::draft : Pass::target;
        own.set_matrix(layer, slot, pass, values, outputs, inputs, static_cast<Form>(form), group);
        got = static_cast<int>(own.matrix(layer, slot, pass).form());
    });
    return got;
}

CASSANDRA_API size_t cassandra_engine_weight_bytes(void* engine, int draft) {
    return static_cast<Engine*>(engine)->weight_bytes(draft ? Pass::draft : Pass::target);
}

// Layer `layers` is the final norm.
CASSANDRA_API int cassandra_engine_set_vector(void* engine, int layer, int slot,
                                              const float* values, int count) {
    return attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        const bool last = layer == own.shape().layers;
        (last ? own.final_norm() : own.vector(layer, slot)).assign(values, values + count);
    });
}

CASSANDRA_API int cassandra_engine_forward(void* engine, const int32_t* tokens, int count,
                                           int position, int draft, int rows, int wanted,
                                           float* logits) {
    const Pass pass = draft ? Pass::draft : Pass::target;
    return static_cast<Engine*>(engine)->forward(tokens, count, position, pass, rows, wanted,
                                                 logits);
}

CASSANDRA_API void cassandra_engine_round(void* engine, const int32_t* history, int position,
                                          const RoundRequest* request, RoundResult* result) {
    static_cast<Engine*>(engine)->round(history, position, *request, *result);
}

CASSANDRA_API size_t cassandra_engine_position_bytes(void* engine) {
    return static_cast<Engine*>(engine)->position_bytes();
}
