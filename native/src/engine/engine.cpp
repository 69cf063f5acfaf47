#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <new>

#include <sys/mman.h>

#include "common/isa.h"

namespace cassandra {
namespace {

constexpr int LANES = 16;
constexpr size_t AHEAD = 1 << 16;  // bytes of a matrix that are fetched during a wait, at most
constexpr int TOGETHER = 4;        // query heads that attend at once, at most

int up_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Items first..last - 1 of `count` that a thread does.
struct Share {
    int first, last;
    Share(int count, int thread, int threads)
        : first(static_cast<int>(static_cast<int64_t>(count) * thread / threads)),
          last(static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads)) {}
};

const EngineKernels& engine_kernels() { CASSANDRA_RETURN_BEST(engine_kernels); }

}  // namespace

Pages::Pages(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint16_t*>(data);
}

Pages::~Pages() { munmap(data_, bytes_); }

void RowTrees::begin(int32_t token, int slot, int position) {
    tokens[rows] = token, slots[rows] = slot, starts[rows] = position;
    numbers[rows] = depths[rows] = paths[rows][0] = 0;
    ++rows;
}

void RowTrees::add(int32_t token, int parent) {
    const int slot = slots[parent], depth = depths[parent] + 1;
    tokens[rows] = token, slots[rows] = slot, starts[rows] = starts[parent], depths[rows] = depth;
    numbers[rows] = static_cast<int32_t>(std::count(slots, slots + rows, slot));
    std::copy_n(paths[parent], depth, paths[rows]);
    paths[rows][depth] = numbers[rows];
    ++rows;
}

// Rows that a thread has prepared for products, in the kinds that were asked for.
class Operand {
  public:
    explicit Operand(int features) : input_(features) {}

    // New rows, `stride` apart; they must stay until the products are done.
    void set(int rows, const float* x, int stride) {
        rows_ = rows, x_ = x, stride_ = stride, ready_ = 0;
    }

    const Input& as(InputKind kind) {
        const unsigned bit = 1u << static_cast<int>(kind);
        if (!(ready_ & bit))
            for (int row = 0; row < rows_; ++row)
                input_.prepare(kind, row, x_ + static_cast<size_t>(row) * stride_);
        ready_ |= bit;
        return input_;
    }

  private:
    Input input_;
    int rows_ = 0, stride_ = 0;
    unsigned ready_ = 0;  // kinds, a bit each
    const float* x_ = nullptr;
};

// Outputs of a matrix that a thread computes.
std::pair<int, int> outputs_of(const Linear& linear, int thread) {
    const int64_t last = kTile * linear.first_tile(thread + 1);
    return {static_cast<int>(kTile * linear.first_tile(thread)),
            static_cast<int>(std::min(last, linear.out_features()))};
}

struct Engine::Scratch {
    explicit Scratch(const ModelShape& shape)
        : hidden(shape.hidden), attended(shape.heads * shape.head_size), inner(shape.intermediate),
          normed(static_cast<size_t>(MAX_ROWS) * shape.hidden),
          queries(static_cast<size_t>(TOGETHER) * shape.head_size),
          scores(static_cast<size_t>(TOGETHER) * up_to(shape.context, LANES)) {}

    Operand hidden, attended, inner;
    std::vector<float> normed;   // [MAX_ROWS, hidden]
    std::vector<float> queries;  // of the heads that attend together
    std::vector<float> scores;
};

Engine::Engine(const ModelShape& shape, const float* frequencies, const uint16_t* embedding,
               int threads, bool pin)
    : shape_(shape), padded_(up_to(shape.head_size, LANES)),
      blocks_((shape.context + LANES - 1) / LANES), kernels_(engine_kernels()),
      frequencies_(frequencies, frequencies + shape.head_size / 2), embedding_(embedding),
      target_(threads), draft_(threads), layers_(shape.layers + 1),
      cache_(position_bytes() * blocks_ * LANES * shape.slots),
      tops_(static_cast<size_t>(threads) * MAX_ROWS), pool_(threads, pin) {
    const int q = shape.heads * shape.head_size, kv = shape.kv_heads * shape.head_size;
    for (auto [rows, width] : {std::pair{&x_, shape.hidden},
                               {&q_, q},
                               {&k_, kv},
                               {&v_, kv},
                               {&attended_, q},
                               {&gate_, shape.intermediate},
                               {&up_, shape.intermediate},
                               {&product_, shape.hidden},
                               {&logits_, shape.vocabulary},
                               {&cosines_, shape.head_size / 2},
                               {&sines_, shape.head_size / 2}})
        rows->resize(static_cast<size_t>(MAX_ROWS) * width);
    for (int thread = 0; thread < threads; ++thread)
        scratch_.push_back(std::make_unique<Scratch>(shape));
}

Engine::~Engine() = default;

void Engine::set_matrix(int layer, int slot, Pass pass, const uint16_t* values, int outputs,
                        int inputs, Form form, int group) {
    Matrix& matrix = layers_[layer].matrices[slot];
    Streams& streams = pass == Pass::draft ? draft_ : target_;
    auto made = Linear::create(values, outputs, inputs, form, group, streams);
    (pass == Pass::draft ? matrix.draft : matrix.target) = std::move(made);
}

const Linear& Engine::matrix(int layer, int slot, Pass pass) const {
    return layers_[layer].matrices[slot].of(pass);
}

std::vector<float>& Engine::vector(int layer, int slot) { return layers_[layer].vectors[slot]; }

size_t Engine::position_bytes() const {
    const size_t values = static_cast<size_t>(shape_.head_size) + padded_;
    return sizeof(uint16_t) * values * shape_.layers * shape_.kv_heads;
}

// Keys of a head: [blocks, head size, 16 positions]; its values follow: [positions, padded].
uint16_t* Engine::keys(int slot, int layer, int head) const {
    const size_t in_slots = static_cast<size_t>(slot) * shape_.layers + layer;
    const size_t place = in_slots * shape_.kv_heads + head;
    return cache_.get() + place * blocks_ * LANES * (shape_.head_size + padded_);
}

uint16_t* Engine::values(int slot, int layer, int head) const {
    return keys(slot, layer, head) + static_cast<size_t>(blocks_) * LANES * shape_.head_size;
}

// A barrier; who waits fetches the beginning of its part of the next matrix.
void Engine::wait_before(int thread, const Linear& next) {
    const uint8_t* part = next.part(thread);
    pool_.barrier({part, part ? AHEAD : 0});
}

// Embeddings and angles of the rows. Ends with a barrier.
void Engine::begin(int thread, const RowTrees& trees) {
    const int half = shape_.head_size / 2;
    const Share share(trees.rows, thread, threads());
    for (int row = share.first; row < share.last; ++row) {
        const uint16_t* from = embedding_ + static_cast<size_t>(trees.tokens[row]) * shape_.hidden;
        float* x = &x_[static_cast<size_t>(row) * shape_.hidden];
        for (int i = 0; i < shape_.hidden; ++i) x[i] = to_float(from[i]);
        for (int i = 0; i < half; ++i) {
            const float angle = static_cast<float>(trees.position(row)) * frequencies_[i];
            cosines_[row * half + i] = std::cos(angle);
            sines_[row * half + i] = std::sin(angle);
        }
    }
    pool_.barrier();
}

// Rotary embedding of one head: dimension i goes with i + size / 2.
void Engine::rotate(float* head, int row) const {
    const int half = shape_.head_size / 2;
    const float* cosine = &cosines_[row * half];
    const float* sine = &sines_[row * half];
    for (int i = 0; i < half; ++i) {
        const float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

// Rows from `first_row` on, as the input of the next products.
void Engine::normalise(int thread, int rows, const std::vector<float>& weight, int first_row) {
    Scratch& own = *scratch_[thread];
    const size_t size = shape_.hidden;
    for (int row = 0; row < rows; ++row)
        kernels_.norm(&x_[(first_row + row) * size], weight.data(), shape_.hidden, shape_.epsilon,
                      &own.normed[row * size]);
    own.hidden.set(rows, own.normed.data(), shape_.hidden);
}

void Engine::multiply(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                      std::vector<float>& out) {
    const int64_t stride = linear.out_features();
    linear.multiply(thread, rows, scratch_[thread]->hidden.as(linear.input()), out.data(), stride);
    if (bias.empty()) return;
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < rows; ++row)
        for (int i = first; i < last; ++i) out[row * stride + i] += bias[i];
}

// Queries, keys and values of the rows.
void Engine::project(int thread, int rows, Pass pass, const Layer& layer) {
    normalise(thread, rows, layer.vectors[VECTOR_INPUT_NORM]);
    multiply(thread, layer.matrices[SLOT_Q].of(pass), layer.vectors[VECTOR_Q_BIAS], rows, q_);
    multiply(thread, layer.matrices[SLOT_K].of(pass), layer.vectors[VECTOR_K_BIAS], rows, k_);
    multiply(thread, layer.matrices[SLOT_V].of(pass), layer.vectors[VECTOR_V_BIAS], rows, v_);
    wait_before(thread, layer.matrices[SLOT_O].of(pass));
}

void Engine::write_keys_values(int thread, const RowTrees& trees, Pass pass, int index) {
    const int size = shape_.head_size;
    const std::vector<float>& weight = layers_[index].vectors[VECTOR_K_NORM];
    const Share share(trees.rows * shape_.kv_heads, thread, threads());
    for (int task = share.first; task < share.last; ++task) {
        const int row = task / shape_.kv_heads, head = task % shape_.kv_heads;
        float* key = &k_[static_cast<size_t>(task) * size];
        const float* value = &v_[static_cast<size_t>(task) * size];
        if (!weight.empty()) kernels_.norm(key, weight.data(), size, shape_.epsilon, key);
        rotate(key, row);
        const int slot = trees.slots[row], at = trees.place(row);
        uint16_t* to = keys(slot, index, head) + static_cast<size_t>(at / LANES) * LANES * size;
        to += at % LANES;
        for (int i = 0; i < size; ++i) to[i * LANES] = to_bf16(key[i]);
        to = values(slot, index, head) + static_cast<size_t>(at) * padded_;
        for (int i = 0; i < size; ++i) to[i] = to_bf16(value[i]);
    }
    wait_before(thread, layers_[index].matrices[SLOT_O].of(pass));
}

// Attention of the heads of a thread, up to four of a group together.
void Engine::attend(int thread, const RowTrees& trees, Pass pass, int index) {
    const int group = shape_.heads / shape_.kv_heads;
    const Share share(trees.rows * shape_.heads, thread, threads());
    for (int task = share.first; task < share.last;) {
        const int row = task / shape_.heads, head = task % shape_.heads;
        const int count = std::min({TOGETHER, group - head % group, share.last - task});
        attend_together(thread, trees, row, index, head, count);
        task += count;
    }
    wait_before(thread, layers_[index].matrices[SLOT_O].of(pass));
}

void Engine::attend_together(int thread, const RowTrees& trees, int row, int index, int head,
                             int count) {
    Scratch& own = *scratch_[thread];
    const int size = shape_.head_size, group = shape_.heads / shape_.kv_heads;
    const float scale = 1.0f / std::sqrt(static_cast<float>(size));
    const std::vector<float>& weight = layers_[index].vectors[VECTOR_Q_NORM];
    const size_t at = (static_cast<size_t>(row) * shape_.heads + head) * size;
    for (int i = 0; i < count; ++i) {
        float* query = &own.queries[i * size];
        std::copy_n(&q_[at + i * size], size, query);
        if (!weight.empty()) kernels_.norm(query, weight.data(), size, shape_.epsilon, query);
        rotate(query, row);
        for (int d = 0; d < size; ++d) query[d] *= scale;
    }
    const int slot = trees.slots[row], shared = head / group;
    kernels_.attend({own.queries.data(), count, keys(slot, index, shared),
                     values(slot, index, shared), trees.position(row) + 1, trees.starts[row],
                     trees.paths[row], size, padded_, own.scores.data(), &attended_[at]});
}

// Adds the product of a matrix to the residual stream; the parts of x that a thread adds to are its
// own. Ends with a barrier.
void Engine::add_product(int thread, const Linear& linear, int rows, Operand& operand,
                         const Linear& next) {
    const Input& input = operand.as(linear.input());
    linear.multiply(thread, rows, input, product_.data(), shape_.hidden);
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < rows; ++row) {
        const size_t at = static_cast<size_t>(row) * shape_.hidden;
        for (int i = first; i < last; ++i) x_[at + i] += product_[at + i];
    }
    wait_before(thread, next);
}

void Engine::feed_forward(int thread, int rows, Pass pass, const Layer& layer, const Linear& next) {
    normalise(thread, rows, layer.vectors[VECTOR_POST_NORM]);
    const Linear& gate = layer.matrices[SLOT_GATE].of(pass);
    const Linear& up = layer.matrices[SLOT_UP].of(pass);
    multiply(thread, gate, {}, rows, gate_);
    multiply(thread, up, {}, rows, up_);
    const auto [first, last] = outputs_of(gate, thread);  // and of up, which has the same shape
    for (int row = 0; row < rows; ++row) {
        float* at = &gate_[static_cast<size_t>(row) * shape_.intermediate + first];
        const float* other = &up_[static_cast<size_t>(row) * shape_.intermediate + first];
        kernels_.swiglu(at, other, last - first, at);
    }
    wait_before(thread, layer.matrices[SLOT_DOWN].of(pass));
    Operand& inner = scratch_[thread]->inner;
    inner.set(rows, gate_.data(), shape_.intermediate);
    add_product(thread, layer.matrices[SLOT_DOWN].of(pass), rows, inner, next);
}

// Logits of the rows from first_row on, and the best of each. Ends with a barrier.
void Engine::head(int thread, int rows, Pass pass, int first_row) {
    const int wanted = rows - first_row;
    const Layer& end = layers_.back();
    const Linear& linear = end.matrices[0].of(pass);
    normalise(thread, wanted, end.vectors[0], first_row);
    multiply(thread, linear, {}, wanted, logits_);
    const auto [first, last] = outputs_of(linear, thread);
    for (int row = 0; row < wanted; ++row) {
        const float* logits = &logits_[static_cast<size_t>(row) * shape_.vocabulary];
        tops_[thread * MAX_ROWS + row] = kernels_.top(logits + first, last - first, first);
    }
    pool_.barrier();
}

// Of all threads; `row` counts from the first row that has logits.
Top Engine::best(int row) const {
    Top found = tops_[row];
    for (int thread = 1; thread < threads(); ++thread) {
        const Top& other = tops_[thread * MAX_ROWS + row];
        found.finite = found.finite && other.finite;
        for (int i = 0; i < BEST; ++i) found.add(other.value[i], other.index[i]);
    }
    return found;
}

// All threads call it; logits of the rows from first_row on are there when it returns.
void Engine::step(int thread, const RowTrees& trees, Pass pass, int first_row) {
    const int rows = trees.rows;
    begin(thread, trees);
    for (int index = 0; index < shape_.layers; ++index) {
        const Layer& layer = layers_[index];
        project(thread, rows, pass, layer);
        write_keys_values(thread, trees, pass, index);
        attend(thread, trees, pass, index);
        Operand& attended = scratch_[thread]->attended;
        attended.set(rows, attended_.data(), shape_.heads * shape_.head_size);
        add_product(thread, layer.matrices[SLOT_O].of(pass), rows, attended,
                    layer.matrices[SLOT_GATE].of(pass));
        feed_forward(thread, rows, pass, layer, layers_[index + 1].matrices[0].of(pass));
    }
    if (first_row < rows) head(thread, rows, pass, first_row);
}

int Engine::forward(const int32_t* tokens, int count, int position, Pass pass, int rows, int wanted,
                    float* logits) {
    int found = -1;
    for (int done = 0; done < count;) {
        const int now_rows = std::min(rows, count - done);
        const int first_row = std::max(0, count - wanted - done);
        RowTrees chain;
        chain.begin(tokens[done], 0, position + done);
        for (int row = 1; row < now_rows; ++row) chain.add(tokens[done + row], row - 1);
        pool_.run([&](int thread) { step(thread, chain, pass, first_row); });
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
        if (row->parent == ROOT)
            trees.begin(row->token, row->slot, row->position);
        else
            trees.add(row->token, row->parent);
    }
    pool_.run([&](int thread) { step(thread, trees, pass, count - wanted); });
    for (int row = 0; row < wanted; ++row) {
        const Top top = best(row);
        if (!top.finite) return false;
        best_tokens[row] = top.index[0];
    }
    const size_t size = static_cast<size_t>(shape_.vocabulary);
    std::copy_n(logits_.data() + (wanted - drawn) * size, drawn * size, logits);
    return true;
}

void Engine::copy_positions(int from, int to, int count) {
    const size_t of_keys = static_cast<size_t>(up_to(count, LANES)) * shape_.head_size;
    const size_t of_values = static_cast<size_t>(count) * padded_;
    for (int layer = 0; layer < shape_.layers; ++layer) {
        for (int head = 0; head < shape_.kv_heads; ++head) {
            std::copy_n(keys(from, layer, head), of_keys, keys(to, layer, head));
            std::copy_n(values(from, layer, head), of_values, values(to, layer, head));
        }
    }
}

// Moves the keys and values of rows, ascending, to the places from position + 1 on of a slot.
// All threads call it; whoever reads them has passed a barrier since.
void Engine::keep(int thread, int slot, int position, const int32_t* rows, int count) {
    const int size = shape_.head_size;
    const Share share(shape_.layers * shape_.kv_heads, thread, threads());
    for (int i = 0; i < count; ++i) {
        const int from = position + rows[i], to = position + 1 + i;
        if (from == to) continue;
        for (int task = share.first; task < share.last; ++task) {
            const int layer = task / shape_.kv_heads, head = task % shape_.kv_heads;
            uint16_t* all = keys(slot, layer, head);
            const auto place = [&](int at) {
                return all + static_cast<size_t>(at / LANES) * LANES * size + at % LANES;
            };
            for (int d = 0; d < size; ++d) place(to)[d * LANES] = place(from)[d * LANES];
            uint16_t* value = values(slot, layer, head);
            std::copy_n(value + static_cast<size_t>(from) * padded_, size,
                        value + static_cast<size_t>(to) * padded_);
        }
    }
}

}  // namespace cassandra
