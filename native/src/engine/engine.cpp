#include "engine/engine.h"

#include <algorithm>

#include "common/isa.h"
#include "engine/scratch.h"

namespace cassandra {
namespace {

const EngineKernels& engine_kernels() { CASSANDRA_RETURN_BEST(engine_kernels); }

}  // namespace

void RowTrees::begin(int32_t token, int slot, int position, const KeyRange& range,
                     const Sampler* sampler) {
    tokens[rows] = token, slots[rows] = slot, starts[rows] = position;
    ranges[rows] = range, samplers[rows] = sampler;
    numbers[rows] = depths[rows] = paths[rows][0] = 0;
    ++rows;
}

void RowTrees::add(int32_t token, int parent) {
    const int slot = slots[parent], depth = depths[parent] + 1;
    tokens[rows] = token, slots[rows] = slot, starts[rows] = starts[parent], depths[rows] = depth;
    numbers[rows] = static_cast<int32_t>(std::count(slots, slots + rows, slot));
    ranges[rows] = ranges[parent], samplers[rows] = samplers[parent];
    std::copy_n(paths[parent], depth, paths[rows]);
    paths[rows][depth] = numbers[rows];
    ++rows;
}

Engine::Engine(const ModelShape& shape, const LayerShape* layers, const Ropes& ropes,
               const uint16_t* embedding, int threads, bool pin)
    : shape_(shape), kernels_(engine_kernels()), attention_(attention_kernels()),
      layer_shapes_(layers, layers + shape.layers),
      frequencies_(ropes.frequencies, ropes.frequencies + shape.ropes * shape.pairs),
      rope_scales_(ropes.scales, ropes.scales + shape.ropes), embedding_(embedding),
      target_(threads), draft_(threads), layers_(shape.layers + 1),
      cache_(shape.slots, shape.layers, shape.kv_heads, shape.head_size, shape.context),
      tops_(static_cast<size_t>(threads) * PROMPT_ROWS), picks_(PROMPT_ROWS), low_(shape.slots),
      pool_(threads, pin) {
    const int q = shape.heads * shape.head_size, kv = shape.kv_heads * shape.head_size;
    for (auto [rows, width] : {std::pair{&x_, shape.hidden},
                               {&q_, q},
                               {&k_, kv},
                               {&v_, kv},
                               {&attended_, q},
                               {&gate_, shape.intermediate},
                               {&up_, shape.intermediate},
                               {&product_, shape.hidden},
                               {&cosines_, shape.ropes * shape.pairs},
                               {&sines_, shape.ropes * shape.pairs}})
        rows->resize(static_cast<size_t>(PROMPT_ROWS) * width);
    for (int thread = 0; thread < threads; ++thread)
        scratch_.push_back(std::make_unique<Scratch>(shape, cache_));
}

Engine::~Engine() = default;

void Engine::set_matrix(int layer, int matrix_id, Pass pass, const uint16_t* values, int outputs,
                        int inputs, Form form, int group) {
    Matrix& matrix = layers_[layer].matrices[matrix_id];
    Streams& streams = pass == Pass::draft ? draft_ : target_;
    const Linear* plane = pass == Pass::target ? matrix.draft.get() : nullptr;
    auto made = Linear::create(values, outputs, inputs, form, group, streams, plane);
    (pass == Pass::draft ? matrix.draft : matrix.target) = std::move(made);
}

void Engine::restore_matrix(int layer, int matrix_id, Pass pass, const uint8_t* state, size_t bytes,
                            int outputs, int inputs) {
    Matrix& matrix = layers_[layer].matrices[matrix_id];
    Streams& streams = pass == Pass::draft ? draft_ : target_;
    const Linear* plane = pass == Pass::target ? matrix.draft.get() : nullptr;
    auto made = Linear::restore(state, bytes, outputs, inputs, streams, plane);
    (pass == Pass::draft ? matrix.draft : matrix.target) = std::move(made);
}

void Engine::stream_matrix(int layer, int matrix_id, int tensor, int64_t first_value, int outputs,
                           int inputs) {
    layers_[layer].matrices[matrix_id].target =
        source().matrix(tensor, first_value, outputs, inputs, layer == shape_.layers);
}

stream::Source& Engine::source(const char* path) {
    if (path) source_ = std::make_unique<stream::Source>(path, threads());
    return *source_;
}

const Linear& Engine::matrix(int layer, int matrix_id, Pass pass) const {
    return layers_[layer].matrices[matrix_id].of(pass);
}

std::vector<float>& Engine::vector(int layer, int vector_id) {
    return layers_[layer].vectors[vector_id];
}

int Engine::forward(const int32_t* tokens, int count, int position, Pass pass,
                    const KeyRange& range, int rows, int wanted, float* logits) {
    seal(0, position);
    int found = -1;
    for (int done = 0; done < count;) {
        const int before = std::max(0, count - wanted - done);  // tokens before those with logits
        const int now_rows = std::min({rows, count - done, before + MAX_ROWS});
        const int first_row = std::min(before, now_rows);
        RowTrees chain;
        for (int row = 0; row < now_rows; ++row)
            chain.begin(tokens[done + row], 0, position + done + row, range);
        open_rows(chain);
        require_logits(now_rows - first_row);
        pool_.run([&](int thread) { step(thread, chain, pass, first_row); });
        require_source();
        for (int row = first_row; row < now_rows; ++row) {
            const Top top = best(row - first_row);
            if (!top.finite) return NOT_FINITE;
            found = top.index[0];
            if (!logits) continue;
            const float* from = &logits_[static_cast<size_t>(row - first_row) * shape_.vocabulary];
            logits = std::copy_n(from, shape_.vocabulary, logits);
        }
        done += now_rows;
    }
    return found;
}

bool Engine::run_rows(const PassRow* rows, int count, Pass pass, int wanted, int32_t* best_tokens,
                      int drawn, float* logits) {
    RowTrees trees;
    for (const PassRow* row = rows; row < rows + count; ++row) {
        if (row->parent == ROOT) {
            seal(row->slot, row->position);
            trees.begin(row->token, row->slot, row->position);
        } else {
            trees.add(row->token, row->parent);
        }
    }
    open_rows(trees);
    require_logits(wanted);
    pool_.run([&](int thread) { step(thread, trees, pass, count - wanted); });
    require_source();
    for (int row = 0; row < wanted; ++row) {
        const Top top = best(row);
        if (!top.finite) return false;
        best_tokens[row] = top.index[0];
    }
    const size_t size = static_cast<size_t>(shape_.vocabulary);
    std::copy_n(logits_.data() + (wanted - drawn) * size, drawn * size, logits);
    return true;
}

// Make room for the logits of a pass.
void Engine::require_logits(int rows) {
    const size_t needed = static_cast<size_t>(rows) * shape_.vocabulary;
    if (logits_.size() < needed) logits_.resize(needed);
}

// Make the places of the rows writable.
void Engine::open_rows(const RowTrees& trees) {
    for (int row = 0; row < trees.rows; ++row)
        cache_.open(trees.slots[row], trees.place(row), trees.place(row) + 1);
}

void Engine::copy_positions(int from, int to, int count) { cache_.copy(from, to, count); }

// Move the keys and values of rows, ascending, to the places from position + 1 on of a slot. All
// threads call this; a barrier must follow before the keys and values are read.
void Engine::keep(int thread, int slot, int position, const int32_t* rows, int count) {
    const Share share(shape_.layers * shape_.kv_heads, thread, threads());
    for (int task = share.first; task < share.last; ++task) {
        const int layer = task / shape_.kv_heads, head = task % shape_.kv_heads;
        for (int i = 0; i < count; ++i)
            if (rows[i] != 1 + i)
                cache_.move(slot, layer, head, position + rows[i], position + 1 + i);
    }
}

}  // namespace cassandra
