// A model on packed weights: steps of draft and target, and rounds of speculation.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/cache.h"
#include "common/pool.h"
#include "engine/kernels.h"
#include "engine/low.h"
#include "linear/linear.h"
#include "stream/source.h"

namespace cassandra {

constexpr int MAX_ROWS = 16;           // of one pass that trees or logits are of
constexpr int PROMPT_ROWS = kMaxRows;  // of one pass over a prompt
constexpr int NOT_FINITE = -3;         // a logit is NaN or infinite: there is no best token
static_assert(MAX_ROWS == 1 + MOST_NODES, "a tree and the token before it fill a pass");

// Dimensions of a model. The fields, their order and types are those of native/engine_binding.py.
struct ModelShape {
    int32_t layers;
    int32_t hidden;
    int32_t intermediate;
    int32_t heads;
    int32_t kv_heads;
    int32_t head_size;
    int32_t vocabulary;
    int32_t context;     // most positions of a sequence
    int32_t slots;       // sequences that have keys and values
    int32_t pairs;       // of dimensions of a head that are rotated: i with i + pairs
    int32_t ropes;       // rotary embeddings
    int32_t activation;  // an Activation
    float epsilon;       // of norms
    float query_scale;
    float embedding_scale;
    float attention_cap;   // of scores; 0: none
    float logit_cap;       // of logits; 0: none
    float residual_scale;  // of what attention and feed-forward add
    float logit_divisor;
};

// What differs between layers. Also in native/engine_binding.py.
struct LayerShape {
    int32_t window;  // positions that a row sees, its own included; 0: all
    int32_t rope;    // which rotary embedding
};

// Rotary embeddings of a model.
struct Ropes {
    const float* frequencies;  // angle by position [ropes, pairs]
    const float* scales;       // of cosines and sines [ropes]
};

// Positions before a pass that its rows see: the first `sinks` ones, and those from `start` on.
struct View {
    int32_t sinks = 0, start = 0;
};

// Parts of a round: all of it; its drafts alone, as nodes of the result; or the verification of the
// result's nodes, whose tokens the caller chooses by the logits before it calls keep.
enum class Stage : int32_t { whole, draft, verify };

// What a round may do (cassandra_spec.drafting.levels). Also in native/engine_binding.py.
struct RoundRequest {
    double direct;     // tokens expected of the low drafter's tree for it to go to the target
    double least;      // probability of a node of the low drafter that is worth its row
    float min_margin;  // drafting stops after a token whose top logit exceeds the second by less
    float alternative_margin;  // second-best tokens are verified where the margin is below
    int32_t budget;            // positions after the first that passes may write
    int32_t model;             // tokens of the draft view
    int32_t low;               // nodes of the low drafter in a pass of the draft view
    int32_t rows;              // nodes that are verified
    int32_t branches;          // candidates of one place
    int32_t alternatives;      // second-best tokens
    int32_t uses_low;          // whether low drafters run
    int32_t slot;              // of the sequence
    Stage stage;               // which part of the round is to run
    View view;                 // of passes of the draft view
    int32_t stop_count;
    const int32_t* stops;  // tokens after which nothing is drafted
};

// What a round did. Also in native/engine_binding.py.
struct RoundResult {
    int32_t nodes;  // drafted
    int32_t tokens[MAX_ROWS];
    int32_t parents[MAX_ROWS];
    int32_t sources[MAX_ROWS];
    double confidences[MAX_ROWS];
    int32_t accepted;
    int32_t path[MAX_ROWS];  // the accepted nodes
    int32_t next;            // the token after them
    int32_t stopped;         // whether a small margin ended the chain of the draft view
    int32_t passes;          // of the draft view
    int32_t pass_starts[MAX_ROWS];
    int32_t pass_rows[MAX_ROWS];
    double pass_seconds[MAX_ROWS];
    double verify_seconds;
};

enum class Pass { target, draft };

// Matrices of a layer, in the order of use.
enum Slot { SLOT_Q, SLOT_K, SLOT_V, SLOT_O, SLOT_GATE, SLOT_UP, SLOT_DOWN, SLOTS };

// Vectors of a layer: weights of norms before attention and feed-forward, biases in the order of the
// matrices, norms of single heads, or of rows of them, norms of what attention and feed-forward add.
// Any may be empty.
enum VectorSlot {
    VECTOR_ATTENTION_NORM,
    VECTOR_FEED_FORWARD_NORM,
    VECTOR_Q_BIAS,
    VECTOR_K_BIAS,
    VECTOR_V_BIAS,
    VECTOR_O_BIAS,
    VECTOR_GATE_BIAS,
    VECTOR_UP_BIAS,
    VECTOR_DOWN_BIAS,
    VECTOR_Q_NORM,
    VECTOR_K_NORM,
    VECTOR_ATTENDED_NORM,
    VECTOR_FED_FORWARD_NORM,
    VECTOR_SLOTS
};

// Target and draft of one matrix; the draft may be missing in an engine that only decodes plainly.
struct Matrix {
    std::unique_ptr<Linear> target;
    std::unique_ptr<Linear> draft;
    const Linear& of(Pass pass) const { return pass == Pass::draft ? *draft : *target; }
};

struct Layer {
    Matrix matrices[SLOTS];
    std::vector<float> vectors[VECTOR_SLOTS];
};

// A row of a pass as a caller gives it. Also in native/engine_binding.py.
struct PassRow {
    int32_t slot;
    int32_t position;
    int32_t token;
    int32_t parent;  // an earlier row of the slot, or ROOT
};

// The rows of a pass: a tree in each slot that takes part. A row has the keys and values of its own
// at the place of its number in its tree, and sees those of the rows above it.
struct RowTrees {
    int rows = 0;
    View view;
    int32_t tokens[PROMPT_ROWS];
    int32_t slots[PROMPT_ROWS];
    int32_t starts[PROMPT_ROWS];   // position where the row's tree begins
    int32_t numbers[PROMPT_ROWS];  // of the row in its tree
    int32_t depths[PROMPT_ROWS];
    int32_t paths[PROMPT_ROWS][MAX_ROWS];  // numbers of the rows above a row and its own, by depth

    int place(int row) const { return starts[row] + numbers[row]; }
    int position(int row) const { return starts[row] + depths[row]; }

    // Adds a row that begins the tree of a slot.
    void begin(int32_t token, int slot, int position);
    // Adds a row below another one.
    void add(int32_t token, int parent);
};

class Operand;

class Engine {
  public:
    Engine(const ModelShape& shape, const LayerShape* layers, const Ropes& ropes,
           const uint16_t* embedding, int threads, bool pin);
    ~Engine();

    int threads() const { return pool_.threads(); }
    // Makes a matrix of BF16 patterns [outputs, inputs]; layer `layers` is the head. Matrices must
    // be made in the order of use. Throws as Linear::create.
    void set_matrix(int layer, int slot, Pass pass, const uint16_t* values, int outputs, int inputs,
                    Form form, int group);
    // Makes the target of a matrix one that is read whenever it is used, in values of a tensor of
    // the source from first_value on.
    void stream_matrix(int layer, int slot, int tensor, int64_t first_value, int outputs,
                       int inputs);
    const Linear& matrix(int layer, int slot, Pass pass) const;
    // Where targets come from that are read whenever they are used; made by the first call that
    // has a path. Throws std::runtime_error if the file cannot be read.
    stream::Source& source(const char* path = nullptr);
    size_t weight_bytes(Pass pass) const { return streams(pass).bytes(); }
    std::vector<float>& vector(int layer, int slot);

    // Runs `count` consecutive tokens in slot 0, the first at `position`, in passes of up to `rows`
    // rows, 1..PROMPT_ROWS.
    // Fills logits [wanted, vocabulary] of the last `wanted` tokens, if not null. Returns the best
    // token of the last position, -1 if wanted is 0, or NOT_FINITE.
    int forward(const int32_t* tokens, int count, int position, Pass pass, const View& view,
                int rows, int wanted, float* logits);

    // One pass over rows of any slots. Fills best [wanted], the tokens after the last rows, and
    // logits [drawn, vocabulary] of the last of them. False if logits are not finite.
    bool run_rows(const PassRow* rows, int count, Pass pass, int wanted, int32_t* best, int drawn,
                  float* logits);

    // Copies the keys and values of the first positions of a slot to another one.
    void copy_positions(int from, int to, int count);

    // One round that begins with history[position], which was emitted and not yet seen by the
    // target: all earlier tokens were. False if logits are not finite.
    bool round(const int32_t* history, int position, const RoundRequest& request,
               RoundResult& result);

    // Logits of the last pass [rows that have some, vocabulary], until the next one.
    const float* logits() const { return logits_.data(); }

    // Keeps the keys and values of the rows of a verification that are accepted, ascending.
    void keep(int slot, int position, const int32_t* rows, int count) {
        pool_.run([&](int thread) { keep(thread, slot, position, rows, count); });
    }

    // Of the low drafters; a sequence begins with a reset.
    LowDrafter& low() { return low_; }

    // Seconds of the first thread in products of matrices since the last call; the first call
    // begins to count. Nothing may run meanwhile.
    double take_product_seconds() {
        timed_ = true;
        return std::exchange(product_seconds_, 0.0);
    }

    // Keys and values of all slots. Nothing may run meanwhile.
    KeyValues& cache() { return cache_; }
    // Seals a chunk of a slot, whose positions are final: what target and draft will read of it.
    void seal(int slot, int chunk, const uint16_t* target, const uint16_t* draft);

  private:
    struct Scratch;  // of one thread

    class Round;  // of one thread

    void step(int thread, const RowTrees& trees, Pass pass, int first_row);
    void begin(int thread, const RowTrees& trees);
    const uint16_t* embedding_row(int thread, int32_t token);
    // Throws std::runtime_error if what a pass read was not what it should have been.
    void require_source() {
        if (source_) source_->require_good();
    }
    void wait_before(int thread, const Linear& next);
    void normalise(int thread, int rows, const std::vector<float>& weight, int first_row = 0);
    void run_product(int thread, const Linear& linear, int rows, Operand& operand,
                     std::vector<float>& out);
    void add_bias(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                  std::vector<float>& out);
    void multiply(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                  std::vector<float>& out);
    void project(int thread, int rows, Pass pass, const Layer& layer);
    void normalise_rows(int thread, int rows, const std::vector<float>& weight,
                        std::vector<float>& heads);
    const float* head_norm(int layer, VectorSlot slot) const;
    void write_keys_values(int thread, const RowTrees& trees, Pass pass, int index);
    void open_rows(const RowTrees& trees);
    void group_rows(int thread, const RowTrees& trees);
    void attend(int thread, const RowTrees& trees, Pass pass, int index);
    class Attention;  // of one thread in one layer
    void keep(int thread, int slot, int position, const int32_t* rows, int count);
    void add_product(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                     Operand& operand, const std::vector<float>& norm, const Linear& next);
    void feed_forward(int thread, int rows, Pass pass, const Layer& layer, const Linear& next);
    void head(int thread, int rows, Pass pass, int first_row);
    Top best(int row) const;
    void rotate(float* head, int row, int layer) const;

    const Streams& streams(Pass pass) const { return pass == Pass::draft ? draft_ : target_; }
    ModelShape shape_;
    const EngineKernels& kernels_;
    const AttentionKernels& attention_;
    std::vector<LayerShape> layer_shapes_;
    std::vector<float> frequencies_;  // [ropes, pairs]
    std::vector<float> rope_scales_;
    const uint16_t* embedding_;  // BF16 [vocabulary, hidden], the caller's; or null: the source's
    Streams target_, draft_;
    std::vector<Layer> layers_;  // the last one has the final norm and the head, in slot 0
    std::unique_ptr<stream::Source> source_;  // reads for matrices in layers_, and ends before them
    KeyValues cache_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
    // Shared by the threads, a row each: written in parts, read after a barrier.
    std::vector<float> x_, q_, k_, v_, attended_, gate_, up_, product_;
    std::vector<float> logits_;           // [MAX_ROWS, vocabulary]
    std::vector<float> cosines_, sines_;  // [ropes, PROMPT_ROWS, pairs]
    std::vector<Top> tops_;               // [threads, MAX_ROWS]
    LowDrafter low_;
    bool timed_ = false;  // whether products are
    double product_seconds_ = 0.0;
    Pool pool_;
};

}  // namespace cassandra
