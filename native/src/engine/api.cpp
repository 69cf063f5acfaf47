// Entry points for native/engine_binding.py, which has checked the arguments.
#include "common/guard.h"
#include "common/isa.h"
#include "engine/engine.h"

using namespace cassandra;

// Returns null on failure.
CASSANDRA_API void* cassandra_engine_new(const ModelShape* shape, const LayerShape* layers,
                                         const float* frequencies, const float* rope_scales,
                                         const uint16_t* embedding, int threads, int pin) {
    Engine* engine = nullptr;
    const Ropes ropes = {frequencies, rope_scales};
    attempt([&] { engine = new Engine(*shape, layers, ropes, embedding, threads, pin != 0); });
    return engine;
}

CASSANDRA_API void cassandra_engine_free(void* engine) { delete static_cast<Engine*>(engine); }

// Layer `layers` is the head. `form` and `group` are those of linear/linear.h; returns the form
// used, or FAILED.
CASSANDRA_API int cassandra_engine_set_matrix(void* engine, int layer, int matrix_id, int draft,
                                              const uint16_t* values, int outputs, int inputs,
                                              int form, int group) {
    int got = FAILED;
    attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        const Pass pass = draft ? Pass::draft : Pass::target;
        own.set_matrix(layer, matrix_id, pass, values, outputs, inputs, static_cast<Form>(form),
                       group);
        got = static_cast<int>(own.matrix(layer, matrix_id, pass).form());
    });
    return got;
}

// Writes the state of a matrix, if `to` is not null, and its size; its parts are the rest.
CASSANDRA_API int cassandra_engine_matrix_state(void* engine, int layer, int matrix_id, int draft,
                                                uint8_t* to, size_t* bytes) {
    return attempt([&] {
        const Pass pass = draft ? Pass::draft : Pass::target;
        const auto state = static_cast<Engine*>(engine)->matrix(layer, matrix_id, pass).state();
        if (to) std::copy(state.begin(), state.end(), to);
        *bytes = state.size();
    });
}

// Makes a matrix from its state; the caller then writes its parts. Returns its form, or FAILED.
CASSANDRA_API int cassandra_engine_restore_matrix(void* engine, int layer, int matrix_id, int draft,
                                                  const uint8_t* state, size_t bytes, int outputs,
                                                  int inputs) {
    int got = FAILED;
    attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        const Pass pass = draft ? Pass::draft : Pass::target;
        own.restore_matrix(layer, matrix_id, pass, state, bytes, outputs, inputs);
        got = static_cast<int>(own.matrix(layer, matrix_id, pass).form());
    });
    return got;
}

// Returns the start of the part of a matrix that a thread reads, and its size in `bytes`.
CASSANDRA_API const uint8_t* cassandra_engine_part(void* engine, int layer, int matrix_id,
                                                   int draft, int thread, size_t* bytes) {
    const Pass pass = draft ? Pass::draft : Pass::target;
    const Linear& matrix = static_cast<Engine*>(engine)->matrix(layer, matrix_id, pass);
    *bytes = matrix.part_bytes(thread);
    return matrix.part(thread);
}

CASSANDRA_API size_t cassandra_engine_weight_bytes(void* engine, int draft) {
    return static_cast<Engine*>(engine)->weight_bytes(draft ? Pass::draft : Pass::target);
}

// Layer `layers` is the final norm.
CASSANDRA_API int cassandra_engine_set_vector(void* engine, int layer, int vector_id,
                                              const float* values, int count) {
    return attempt([&] {
        static_cast<Engine*>(engine)->vector(layer, vector_id).assign(values, values + count);
    });
}

// --- streamed targets (stream/source.h) ---

CASSANDRA_API int cassandra_engine_stream_open(void* engine, const char* path) {
    return attempt([&] { static_cast<Engine*>(engine)->source(path); });
}

// Returns the number of a packed tensor of `count` values whose arrays begin at two places of the
// file, or FAILED. `directory` has five numbers per segment.
CASSANDRA_API int cassandra_engine_stream_tensor(void* engine, const char* name,
                                                 const codec::Params* params, int64_t count,
                                                 const uint32_t* directory, int64_t segments,
                                                 int64_t speculation, int64_t verification) {
    int number = FAILED;
    attempt([&] {
        number = static_cast<Engine*>(engine)->source().add_tensor(
            {name,
             *params,
             count,
             {directory, directory + 5 * segments},
             {speculation, verification},
             {}});
    });
    return number;
}

CASSANDRA_API int cassandra_engine_stream_matrix(void* engine, int layer, int matrix_id, int tensor,
                                                 int64_t first_value, int outputs, int inputs) {
    return attempt([&] {
        static_cast<Engine*>(engine)->stream_matrix(layer, matrix_id, tensor, first_value, outputs,
                                                    inputs);
    });
}

// Sets the embedding: a tensor, or (below 0) BF16 at a place of the file.
CASSANDRA_API int cassandra_engine_stream_embedding(void* engine, int tensor, int64_t place,
                                                    int columns) {
    return attempt(
        [&] { static_cast<Engine*>(engine)->source().set_embedding(tensor, place, columns); });
}

CASSANDRA_API int cassandra_engine_stream_keep(void* engine, int tensor, int array) {
    return attempt([&] { static_cast<Engine*>(engine)->source().keep(tensor, array); });
}

CASSANDRA_API int cassandra_engine_stream_start(void* engine, int64_t slab, int rooms) {
    return attempt([&] { static_cast<Engine*>(engine)->source().start(slab, rooms); });
}

CASSANDRA_API void cassandra_engine_stream_figures(void* engine, stream::Figures* figures) {
    *figures = static_cast<Engine*>(engine)->source().figures();
}

// Returns the top token of the last position, -1 if no logits are wanted, FAILED or NOT_FINITE.
CASSANDRA_API int cassandra_engine_forward(void* engine, const int32_t* tokens, int count,
                                           int position, int draft, int sinks, int start, int rows,
                                           int wanted, float* logits) {
    const Pass pass = draft ? Pass::draft : Pass::target;
    int best = FAILED;
    attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        best = own.forward(tokens, count, position, pass, {sinks, start}, rows, wanted, logits);
    });
    return best;
}

// Runs one pass over rows of any slots: best [wanted] of the last rows, logits [drawn, vocabulary]
// of the last of them. Returns 0, FAILED or NOT_FINITE.
CASSANDRA_API int cassandra_engine_run_rows(void* engine, const PassRow* rows, int count, int draft,
                                            int wanted, int32_t* best, int drawn, float* logits) {
    const Pass pass = draft ? Pass::draft : Pass::target;
    bool finite = false;
    const bool done = attempt([&] {
        Engine& own = *static_cast<Engine*>(engine);
        finite = own.run_rows(rows, count, pass, wanted, best, drawn, logits);
    });
    return !done ? FAILED : finite ? 0 : NOT_FINITE;
}

// Copies the keys and values of the first positions of a slot to another slot.
CASSANDRA_API void cassandra_engine_copy_positions(void* engine, int from, int to, int count) {
    static_cast<Engine*>(engine)->copy_positions(from, to, count);
}

// Runs a round of `count` sequences. Returns 0, FAILED or NOT_FINITE.
CASSANDRA_API int cassandra_engine_round(void* engine, const RoundRequest* requests, int count,
                                         int stage, RoundResult* results, RoundTimes* times) {
    bool finite = false;
    const bool done = attempt([&] {
        finite = static_cast<Engine*>(engine)->round(requests, count, static_cast<Stage>(stage),
                                                     results, *times);
    });
    return !done ? FAILED : finite ? 0 : NOT_FINITE;
}

// Chooses a token of a row of logits that will be at `position`: writes it and the second best (-1:
// none) to `found`, and returns the margin between them in logits; NaN if a logit is not below
// infinity.
CASSANDRA_API float cassandra_pick(const float* logits, int count, const Sampler* sampler,
                                   int position, int32_t* found) {
    float margin = NAN;
    attempt([&] {
        Top top = Top::none();
        for (int at = 0; at < count; ++at) top.add(logits[at], at);
        std::vector<Ranked> room(filters(*sampler) ? count : 0);
        const Pick picked =
            pick(logits, count, top, *sampler, static_cast<uint32_t>(position), room.data());
        found[0] = picked.token, found[1] = picked.second;
        margin = margin_of(picked, *sampler);
    });
    return margin;
}

// Returns the last pass's logits [rows with logits, vocabulary], valid until the next pass.
CASSANDRA_API const float* cassandra_engine_logits(void* engine) {
    return static_cast<Engine*>(engine)->logits();
}

// Keeps the keys and values of the accepted rows of a verification, ascending.
CASSANDRA_API void cassandra_engine_keep(void* engine, int slot, int position, const int32_t* rows,
                                         int count) {
    static_cast<Engine*>(engine)->keep(slot, position, rows, count);
}

// Starts a sequence in a slot: resets its low drafters.
CASSANDRA_API void cassandra_engine_begin(void* engine, int slot) {
    static_cast<Engine*>(engine)->low(slot).reset();
}

// Sets the orders of an n-gram table, from the highest down. Returns false if out of memory.
CASSANDRA_API int cassandra_engine_set_table(void* engine, const TableOrder* orders, int count) {
    return attempt([&] { static_cast<Engine*>(engine)->set_table(orders, count); });
}

// Runs a low drafter on `count` tokens, for tests. Writes at most limits->count nodes and returns
// their number, or FAILED.
CASSANDRA_API int cassandra_low_tree(const int32_t* tokens, int count, const TableOrder* orders,
                                     int order_count, const int32_t* seen, int seen_count,
                                     const int32_t* tail, int tail_count, const TreeLimits* limits,
                                     TreeNode* out) {
    int found = FAILED;
    attempt([&] {
        LowDrafter low;
        low.set_table(orders, order_count);
        low.extend(tokens, count);
        for (int i = 0; i < seen_count; ++i, seen += 1 + BRANCHES)
            low.observe(seen[0], seen + 1, BRANCHES);
        found = low.tree(tail, tail_count, *limits, out);
    });
    return found;
}

CASSANDRA_API size_t cassandra_engine_position_bytes(void* engine) {
    return static_cast<Engine*>(engine)->cache().position_bytes();
}

// --- sealed keys and values (attention/sealer.h) ---

// Sets the format of chunks that later passes seal; null: they seal none.
CASSANDRA_API int cassandra_engine_set_sealed_format(void* engine, const SealedFormat* format) {
    return attempt([&] { static_cast<Engine*>(engine)->set_sealed_format(format); });
}

// Reads BF16 [keys and values, layers, CHUNK, heads, head size] of a chunk, as target or draft, for
// tests.
CASSANDRA_API int cassandra_engine_read_chunk(void* engine, int slot, int chunk, int draft,
                                              uint16_t* out) {
    return attempt(
        [&] { static_cast<Engine*>(engine)->cache().read(slot, chunk, draft != 0, out); });
}

// Writes a chunk in the same layout, for tests.
CASSANDRA_API void cassandra_engine_write_chunk(void* engine, int slot, int chunk,
                                                const uint16_t* from) {
    static_cast<Engine*>(engine)->cache().write_chunk(slot, chunk, from);
}

// Returns the bytes of keys and values held.
CASSANDRA_API size_t cassandra_engine_cache_bytes(void* engine) {
    return static_cast<Engine*>(engine)->cache().held_bytes();
}

CASSANDRA_API double cassandra_engine_take_product_seconds(void* engine) {
    return static_cast<Engine*>(engine)->take_product_seconds();
}
