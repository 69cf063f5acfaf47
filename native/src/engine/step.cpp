// One pass over rows: norms, products, attention. Every thread runs all of it.

#include <algorithm>
#include <cmath>

#include "engine/scratch.h"

namespace cassandra {

// Wait at a barrier; prefetch the start of the thread's part of the next matrix meanwhile.
void Engine::wait_before(int thread, const Linear& next) {
    const uint8_t* part = next.part(thread);
    pool_.barrier({part, part ? AHEAD : 0});
}

const uint16_t* Engine::embedding_row(int thread, int32_t token) {
    if (embedding_) return embedding_ + static_cast<size_t>(token) * shape_.hidden;
    uint16_t* row = scratch_[thread]->embedded.data();
    if (source_ && source_->has_embedding())
        source_->embedding_row(token, row);
    else
        layers_.back().matrices[0].target->row(token, row);
    return row;
}

// Compute embeddings and angles of the rows. Ends with a barrier.
void Engine::begin(int thread, const RowTrees& trees) {
    const Share share(trees.rows, thread, threads());
    for (int row = share.first; row < share.last; ++row) {
        const uint16_t* from = embedding_row(thread, trees.tokens[row]);
        float* x = &x_[static_cast<size_t>(row) * shape_.hidden];
        for (int i = 0; i < shape_.hidden; ++i) x[i] = to_float(from[i]) * shape_.embedding_scale;
        for (int rope = 0; rope < shape_.ropes; ++rope)
            for (int i = 0; i < shape_.pairs; ++i) {
                const float frequency = frequencies_[rope * shape_.pairs + i];
                const float angle = static_cast<float>(trees.position(row)) * frequency;
                const int at = (rope * PROMPT_ROWS + row) * shape_.pairs + i;
                cosines_[at] = std::cos(angle) * rope_scales_[rope];
                sines_[at] = std::sin(angle) * rope_scales_[rope];
            }
    }
    group_rows(thread, trees);
    pool_.barrier();
}

// Apply the rotary embedding to one head: dimension i pairs with i + pairs; dimensions above stay
// unchanged.
void Engine::rotate(float* head, int row, int layer) const {
    const int half = shape_.pairs;
    const int at = (layer_shapes_[layer].rope * PROMPT_ROWS + row) * half;
    const float* cosine = &cosines_[at];
    const float* sine = &sines_[at];
    for (int i = 0; i < half; ++i) {
        const float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

// Normalize rows from `first_row` on as input of the next products; without a weight, copy them.
void Engine::normalise(int thread, int rows, const std::vector<float>& weight, int first_row) {
    Scratch& own = *scratch_[thread];
    const size_t size = shape_.hidden;
    if (weight.empty()) return own.hidden.set(rows, &x_[first_row * size], shape_.hidden);
    for (int row = 0; row < rows; ++row)
        kernels_.norm(&x_[(first_row + row) * size], weight.data(), shape_.hidden, shape_.epsilon,
                      &own.normed[row * size]);
    own.hidden.set(rows, own.normed.data(), shape_.hidden);
}

// Compute the thread's outputs of a product with rows that it has prepared.
void Engine::run_product(int thread, const Linear& linear, int rows, Operand& operand,
                         std::vector<float>& out) {
    const Input& input = operand.as(linear.input());
    const double begun = timed_ && thread == 0 ? now() : 0.0;
    linear.multiply(thread, rows, input, out.data(), linear.out_features());
    if (timed_ && thread == 0) product_seconds_ += now() - begun;
}

// Adds a bias, if it is given, to a thread's part of a product.
void Engine::add_bias(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                      std::vector<float>& out) {
    if (bias.empty()) return;
    const int64_t stride = linear.out_features();
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < rows; ++row)
        for (int i = first; i < last; ++i) out[row * stride + i] += bias[i];
}

void Engine::multiply(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                      std::vector<float>& out) {
    run_product(thread, linear, rows, scratch_[thread]->hidden, out);
    add_bias(thread, linear, bias, rows, out);
}

// Compute queries, keys and values of the rows.
void Engine::project(int thread, int rows, Pass pass, const Layer& layer) {
    normalise(thread, rows, layer.vectors[VECTOR_ATTENTION_NORM]);
    multiply(thread, layer.matrices[MATRIX_Q].of(pass), layer.vectors[VECTOR_Q_BIAS], rows, q_);
    multiply(thread, layer.matrices[MATRIX_K].of(pass), layer.vectors[VECTOR_K_BIAS], rows, k_);
    multiply(thread, layer.matrices[MATRIX_V].of(pass), layer.vectors[VECTOR_V_BIAS], rows, v_);
    wait_before(thread, layer.matrices[MATRIX_O].of(pass));
    if (layer.vectors[VECTOR_Q_NORM].size() <= static_cast<size_t>(shape_.head_size)) return;
    normalise_rows(thread, rows, layer.vectors[VECTOR_Q_NORM], q_);
    normalise_rows(thread, rows, layer.vectors[VECTOR_K_NORM], k_);
    pool_.barrier();
}

// Apply norms over all heads of a row.
void Engine::normalise_rows(int thread, int rows, const std::vector<float>& weight,
                            std::vector<float>& heads) {
    const int size = static_cast<int>(weight.size());
    const Share share(rows, thread, threads());
    for (int row = share.first; row < share.last; ++row) {
        float* at = &heads[static_cast<size_t>(row) * size];
        kernels_.norm(at, weight.data(), size, shape_.epsilon, at);
    }
}

// Return the weight of a norm over single heads, or null.
const float* Engine::head_norm(int layer, VectorId vector_id) const {
    const std::vector<float>& weight = layers_[layer].vectors[vector_id];
    return weight.size() == static_cast<size_t>(shape_.head_size) ? weight.data() : nullptr;
}

void Engine::write_keys_values(int thread, const RowTrees& trees, Pass pass, int index) {
    const int size = shape_.head_size;
    const float* weight = head_norm(index, VECTOR_K_NORM);
    const Share share(trees.rows * shape_.kv_heads, thread, threads());
    for (int task = share.first; task < share.last; ++task) {
        const int row = task / shape_.kv_heads, head = task % shape_.kv_heads;
        float* key = &k_[static_cast<size_t>(task) * size];
        const float* value = &v_[static_cast<size_t>(task) * size];
        if (weight) kernels_.norm(key, weight, size, shape_.epsilon, key);
        rotate(key, row, index);
        cache_.write(trees.slots[row], index, head, trees.place(row), key, value);
    }
    wait_before(thread, layers_[index].matrices[MATRIX_O].of(pass));
}

// Add the product of a matrix with its bias, normalized if a norm is given, to the residual stream;
// each thread adds to its own parts of x. Ends with a barrier; a norm adds another.
void Engine::add_product(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                         Operand& operand, const std::vector<float>& norm, const Linear& next) {
    run_product(thread, linear, rows, operand, product_);
    add_bias(thread, linear, bias, rows, product_);
    if (!norm.empty()) pool_.barrier();
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < rows; ++row) {
        const size_t at = static_cast<size_t>(row) * shape_.hidden;
        const float* added = &product_[at];
        if (!norm.empty()) {
            float* normed = scratch_[thread]->normed.data();
            kernels_.norm(added, norm.data(), shape_.hidden, shape_.epsilon, normed);
            added = normed;
        }
        for (int i = first; i < last; ++i) x_[at + i] += added[i] * shape_.residual_scale;
    }
    wait_before(thread, next);
}

void Engine::feed_forward(int thread, int rows, Pass pass, const Layer& layer, const Linear& next) {
    normalise(thread, rows, layer.vectors[VECTOR_PRE_FFN_NORM]);
    const Linear& gate = layer.matrices[MATRIX_GATE].of(pass);
    const Linear& up = layer.matrices[MATRIX_UP].of(pass);
    multiply(thread, gate, layer.vectors[VECTOR_GATE_BIAS], rows, gate_);
    multiply(thread, up, layer.vectors[VECTOR_UP_BIAS], rows, up_);
    const auto [first, last] = outputs_of(gate, thread);  // and of up, which has the same shape
    for (int row = 0; row < rows; ++row) {
        float* at = &gate_[static_cast<size_t>(row) * shape_.intermediate + first];
        const float* other = &up_[static_cast<size_t>(row) * shape_.intermediate + first];
        kernels_.gate[shape_.activation](at, other, last - first, at);
    }
    wait_before(thread, layer.matrices[MATRIX_DOWN].of(pass));
    Operand& inner = scratch_[thread]->inner;
    inner.set(rows, gate_.data(), shape_.intermediate);
    add_product(thread, layer.matrices[MATRIX_DOWN].of(pass), layer.vectors[VECTOR_DOWN_BIAS], rows,
                inner, layer.vectors[VECTOR_POST_FFN_NORM], next);
}

// Compute logits of the rows from first_row on, and each row's top. Ends with a barrier.
void Engine::head(int thread, int rows, Pass pass, int first_row) {
    const int wanted = rows - first_row;
    const Layer& end = layers_.back();
    const Linear& linear = end.matrices[0].of(pass);
    normalise(thread, wanted, end.vectors[0], first_row);
    multiply(thread, linear, {}, wanted, logits_);
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < wanted; ++row) {
        float* logits = &logits_[static_cast<size_t>(row) * shape_.vocabulary];
        if (shape_.logit_divisor != 1.0f)
            for (int i = first; i < last; ++i) logits[i] /= shape_.logit_divisor;
        if (shape_.logit_cap > 0.0f) kernels_.cap(logits + first, last - first, shape_.logit_cap);
        tops_[thread * PROMPT_ROWS + row] = kernels_.top(logits + first, last - first, first);
    }
    pool_.barrier();
}

// Merge the top of all threads; `row` counts from the first row with logits.
Top Engine::best(int row) const {
    Top found = tops_[row];
    for (int thread = 1; thread < threads(); ++thread) {
        const Top& other = tops_[thread * PROMPT_ROWS + row];
        found.finite = found.finite && other.finite;
        for (int i = 0; i < BEST; ++i) found.add(other.value[i], other.index[i]);
    }
    return found;
}

// Choose the tokens after the sampled rows, each by one thread. Ends with a barrier if there are
// any.
void Engine::choose(int thread, const RowTrees& trees, int first_row) {
    const auto* first = trees.samplers + first_row;
    const auto* last = trees.samplers + trees.rows;
    if (std::find_if(first, last, [](const Sampler* each) { return each != nullptr; }) == last)
        return;
    const int wanted = trees.rows - first_row;
    for (int row = thread; row < wanted; row += threads())
        if (first[row])
            picks_[row] = pick(&logits_[static_cast<size_t>(row) * shape_.vocabulary],
                               shape_.vocabulary, best(row), *first[row],
                               static_cast<uint32_t>(trees.position(first_row + row) + 1),
                               scratch_[thread]->ranked.data());
    pool_.barrier();
}

// Return the token that follows a row, counted from the first row with logits.
Choice Engine::choice(const RowTrees& trees, int first_row, int row) const {
    const Top top = best(row);
    const Sampler* sampler = trees.samplers[first_row + row];
    if (!sampler) return {top.index[0], top.index[1], top.margin(), top.finite};
    const Pick& picked = picks_[row];
    return {picked.token, picked.second, margin_of(picked, *sampler), top.finite};
}

// Run a pass. All threads call this; logits of the rows from first_row on are complete when it
// returns.
void Engine::step(int thread, const RowTrees& trees, Pass pass, int first_row) {
    const int rows = trees.rows;
    if (source_ && thread == 0 && pass == Pass::target) source_->begin_pass(first_row < rows);
    begin(thread, trees);
    for (int index = 0; index < shape_.layers; ++index) {
        const Layer& layer = layers_[index];
        project(thread, rows, pass, layer);
        write_keys_values(thread, trees, pass, index);
        attend(thread, trees, pass, index);
        Operand& attended = scratch_[thread]->attended;
        attended.set(rows, attended_.data(), shape_.heads * shape_.head_size);
        add_product(thread, layer.matrices[MATRIX_O].of(pass), layer.vectors[VECTOR_O_BIAS], rows,
                    attended, layer.vectors[VECTOR_POST_ATTENTION_NORM],
                    layer.matrices[MATRIX_GATE].of(pass));
        feed_forward(thread, rows, pass, layer, layers_[index + 1].matrices[0].of(pass));
    }
    if (first_row == rows) return;
    head(thread, rows, pass, first_row);
    choose(thread, trees, first_row);
}

}  // namespace cassandra
