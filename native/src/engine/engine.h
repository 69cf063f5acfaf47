// A model on packed weights: draft and target passes, and rounds of speculation.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/sealer.h"
#include "common/pool.h"
#include "engine/kernels.h"
#include "engine/low.h"
#include "engine/noise.h"
#include "linear/linear.h"
#include "stream/source.h"

namespace cassandra {

// Dimensions of a model. Fields, order and types must match native/engine_binding.py.
struct ModelShape {
    int32_t layers;
    int32_t hidden;
    int32_t intermediate;
    int32_t heads;
    int32_t kv_heads;
    int32_t head_size;
    int32_t vocabulary;
    int32_t context;     // maximum positions of a sequence
    int32_t slots;       // sequences with a KV cache
    int32_t pairs;       // rotated pairs of dimensions of a head: i with i + pairs
    int32_t ropes;       // number of rotary embeddings
    int32_t activation;  // an Activation
    float epsilon;       // of norms
    float query_scale;
    float embedding_scale;
    float attention_cap;   // on scores; 0: off
    float logit_cap;       // on logits; 0: off
    float residual_scale;  // multiplies the outputs of attention and feed-forward
    float logit_divisor;
};

// Properties of one layer. Also in native/engine_binding.py.
struct LayerShape {
    int32_t window;  // positions that a row attends to, including itself; 0: all
    int32_t rope;    // index of the rotary embedding
};

// Rotary embeddings of a model.
struct Ropes {
    const float* frequencies;  // radians per position [ropes, pairs]
    const float* scales;       // multiplies cosines and sines [ropes]
};

// Positions before a pass that its rows attend to: the first `sinks`, and those from `start` on.
struct KeyRange {
    int32_t sinks = 0, start = 0;
};

// Parts of a round: all of it; only its drafts, returned as nodes; or only the verification of
// given nodes.
enum class Stage : int32_t { whole, draft, verify };

// One sequence's part of a round, and its limits (cassandra_spec.drafting.levels). Also in
// native/engine_binding.py.
struct RoundRequest {
    const int32_t* history;       // tokens of the sequence, the rows of this round included
    const int32_t* stops;         // tokens that end drafting
    double skip_draft_threshold;  // low-drafter tokens expected, from which its tree skips a draft
    double min_node_probability;  // of a low drafter's node to be worth its row
    Sampler sampler;
    float min_margin;          // drafting stops after a token whose top two logits differ by less
    float alternative_margin;  // second-best tokens are verified where the margin is below
    int32_t position;          // of the first row
    int32_t count;             // rows of the history; with more than one nothing is drafted
    int32_t wanted;            // last ones of them with logits
    int32_t chooses;           // 1: choose the tokens; 0: the caller does, and then calls keep
    int32_t budget;            // positions after the last row that passes may write
    int32_t model;             // tokens drafted by the draft view
    int32_t low;               // low drafter's nodes per draft view pass
    int32_t rows;              // nodes to which a verification is filled; 0: the chain alone
    int32_t tree;              // nodes of a low drafter's tree that skips the draft view
    int32_t branches;          // maximum children of a node
    int32_t alternatives;      // maximum second-best tokens
    int32_t uses_low;          // 1: run the low drafters
    int32_t slot;              // of the sequence
    KeyRange range;            // of passes of the draft view
    int32_t stop_count;
};

// One sequence's result of a round. Also in native/engine_binding.py.
struct RoundResult {
    int32_t nodes;  // drafted
    int32_t tokens[MAX_ROWS];
    int32_t parents[MAX_ROWS];
    int32_t sources[MAX_ROWS];
    double confidences[MAX_ROWS];
    int32_t accepted;
    int32_t path[MAX_ROWS];  // accepted nodes
    int32_t next;            // the token after them; -1 if no logits were wanted
    int32_t stopped;         // 1: a small margin ended the draft view's chain
    int32_t passes;          // draft view passes, the first ones of the round
    int32_t pass_starts[MAX_ROWS];
    int32_t pass_rows[MAX_ROWS];
    int32_t logits;  // its first row of the verification's logits
};

// Times of the passes of a round. Also in native/engine_binding.py.
struct RoundTimes {
    int32_t passes;
    double pass_seconds[MAX_ROWS];
    double verify_seconds;
};

enum class Pass { target, draft };

// Matrices of a layer, in the order of use.
enum MatrixId {
    MATRIX_Q,
    MATRIX_K,
    MATRIX_V,
    MATRIX_O,
    MATRIX_GATE,
    MATRIX_UP,
    MATRIX_DOWN,
    MATRICES
};

// Vectors of a layer: norm weights before attention and feed-forward, biases in the order of the
// matrices, norms of single heads or of whole rows, norms of the outputs of attention and
// feed-forward. Any may be empty.
enum VectorId {
    VECTOR_ATTENTION_NORM,
    VECTOR_PRE_FFN_NORM,
    VECTOR_Q_BIAS,
    VECTOR_K_BIAS,
    VECTOR_V_BIAS,
    VECTOR_O_BIAS,
    VECTOR_GATE_BIAS,
    VECTOR_UP_BIAS,
    VECTOR_DOWN_BIAS,
    VECTOR_Q_NORM,
    VECTOR_K_NORM,
    VECTOR_POST_ATTENTION_NORM,
    VECTOR_POST_FFN_NORM,
    VECTORS
};

// Target and draft of one matrix. Without a draft of its own, draft passes read the target. The
// draft may be the first plane of the target, and is destroyed after it.
struct Matrix {
    std::unique_ptr<Linear> draft;
    std::unique_ptr<Linear> target;
    const Linear& of(Pass pass) const { return pass == Pass::draft && draft ? *draft : *target; }
};

struct Layer {
    Matrix matrices[MATRICES];
    std::vector<float> vectors[VECTORS];
};

// A row of a pass, as passed by a caller. Also in native/engine_binding.py.
struct PassRow {
    int32_t slot;
    int32_t position;
    int32_t token;
    int32_t parent;  // an earlier row of the slot, or ROOT
};

// The rows of a pass: trees, one for each participating slot, or rows in sequence that each begin a
// tree. A row stores its keys and values at the place of its number in the tree, and attends to the
// rows above it.
struct RowTrees {
    int rows = 0;
    int32_t tokens[PROMPT_ROWS];
    int32_t slots[PROMPT_ROWS];
    int32_t starts[PROMPT_ROWS];   // position where the row's tree begins
    int32_t numbers[PROMPT_ROWS];  // number of the row in its tree
    int32_t depths[PROMPT_ROWS];
    int32_t paths[PROMPT_ROWS][MAX_ROWS];  // numbers of the rows above a row, and its own, by depth
    KeyRange ranges[PROMPT_ROWS];
    const Sampler* samplers[PROMPT_ROWS];  // null: the top token is chosen

    int place(int row) const { return starts[row] + numbers[row]; }
    int position(int row) const { return starts[row] + depths[row]; }

    // Add a row that begins a tree.
    void begin(int32_t token, int slot, int position, const KeyRange& range = {},
               const Sampler* sampler = nullptr);
    // Add a row below another one.
    void add(int32_t token, int parent);
};

// The token that follows a row, and the second-best one.
struct Choice {
    int32_t token, second;
    float margin;
    bool finite;
};

class Operand;

class Engine {
  public:
    Engine(const ModelShape& shape, const LayerShape* layers, const Ropes& ropes,
           const uint16_t* embedding, int threads, bool pin);
    ~Engine();

    int threads() const { return pool_.threads(); }
    // Load a matrix of BF16 patterns [outputs, inputs]; layer `layers` is the head. Matrices must
    // be loaded in the order of use, and a draft before a target of Form::planes, whose first plane
    // it is. Throws like Linear::create.
    void set_matrix(int layer, int matrix_id, Pass pass, const uint16_t* values, int outputs,
                    int inputs, Form form, int group);
    // Make a matrix from its state (Linear::restore) instead, whose parts the caller fills.
    void restore_matrix(int layer, int matrix_id, Pass pass, const uint8_t* state, size_t bytes,
                        int outputs, int inputs);
    // Make the target of a matrix streamed: the values of a tensor of the source from first_value
    // on.
    void stream_matrix(int layer, int matrix_id, int tensor, int64_t first_value, int outputs,
                       int inputs);
    const Linear& matrix(int layer, int matrix_id, Pass pass) const;
    // Return the source of streamed targets; the first call must pass its path. Throws
    // std::runtime_error if the file cannot be read.
    stream::Source& source(const char* path = nullptr);
    size_t weight_bytes(Pass pass) const { return streams(pass).bytes(); }
    std::vector<float>& vector(int layer, int vector_id);

    // Run `count` consecutive tokens in slot 0, the first at `position`, in passes of up to `rows`
    // rows, 1..PROMPT_ROWS. Fill logits [wanted, vocabulary] of the last `wanted` tokens, if not
    // null. Return the top token of the last position, -1 if wanted is 0, or NOT_FINITE.
    int forward(const int32_t* tokens, int count, int position, Pass pass, const KeyRange& range,
                int rows, int wanted, float* logits);

    // Run one pass over rows of any slots. Fill best [wanted], the tokens after the last rows, and
    // logits [drawn, vocabulary] of the last of them. Return false if logits are not finite.
    bool run_rows(const PassRow* rows, int count, Pass pass, int wanted, int32_t* best, int drawn,
                  float* logits);

    // Copy the keys and values of the first positions of a slot to another slot.
    void copy_positions(int from, int to, int count);

    // Run one round of several sequences. Of each, all tokens before its first row were processed
    // by the target. Rows of all sequences are at most PROMPT_ROWS, drafts included. A verification
    // alone reads its nodes from `results`. Return false if logits are not finite.
    bool round(const RoundRequest* requests, int count, Stage stage, RoundResult* results,
               RoundTimes& times);

    // Logits of the last pass [rows with logits, vocabulary], valid until the next pass.
    const float* logits() const { return logits_.data(); }

    // Keep the keys and values of the accepted rows of a verification, ascending.
    void keep(int slot, int position, const int32_t* rows, int count) {
        pool_.run([&](int thread) { keep(thread, slot, position, rows, count); });
    }

    // The low drafters of a slot; reset them at the start of a sequence.
    LowDrafter& low(int slot) { return low_[slot]; }
    void set_table(const TableOrder* orders, int count) {
        for (LowDrafter& each : low_) each.set_table(orders, count);
    }

    // Return the first thread's seconds in matrix products since the last call; the first call
    // starts counting. No pass may be running.
    double take_product_seconds() {
        timed_ = true;
        return std::exchange(product_seconds_, 0.0);
    }

    // The KV cache of all slots. No pass may be running.
    KeyValues& cache() { return cache_; }
    // Set the format of the chunks that later passes seal; null: none are sealed.
    void set_sealed_format(const SealedFormat* format) {
        sealer_ = format ? std::make_unique<ChunkSealer>(*format, cache_, pool_) : nullptr;
    }

  private:
    struct Scratch;  // per thread

    class Part;   // of a round, per thread and sequence
    class Round;  // per thread

    void step(int thread, const RowTrees& trees, Pass pass, int first_row);
    void begin(int thread, const RowTrees& trees);
    const uint16_t* embedding_row(int thread, int32_t token);
    // Throws std::runtime_error if a pass read wrong data.
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
    const float* head_norm(int layer, VectorId vector_id) const;
    void write_keys_values(int thread, const RowTrees& trees, Pass pass, int index);
    void open_rows(const RowTrees& trees);
    // Seal the complete chunks of a slot before the position at which a pass begins.
    void seal(int slot, int position) {
        if (sealer_) sealer_->seal(slot, position);
    }
    void group_rows(int thread, const RowTrees& trees);
    void attend(int thread, const RowTrees& trees, Pass pass, int index);
    class Attention;  // per thread and layer
    void keep(int thread, int slot, int position, const int32_t* rows, int count);
    void add_product(int thread, const Linear& linear, const std::vector<float>& bias, int rows,
                     Operand& operand, const std::vector<float>& norm, const Linear& next);
    void feed_forward(int thread, int rows, Pass pass, const Layer& layer, const Linear& next);
    void head(int thread, int rows, Pass pass, int first_row);
    void choose(int thread, const RowTrees& trees, int first_row);
    void require_logits(int rows);
    Top best(int row) const;
    Choice choice(const RowTrees& trees, int first_row, int row) const;
    void rotate(float* head, int row, int layer) const;

    const Streams& streams(Pass pass) const { return pass == Pass::draft ? draft_ : target_; }
    ModelShape shape_;
    const EngineKernels& kernels_;
    const AttentionKernels& attention_;
    std::vector<LayerShape> layer_shapes_;
    std::vector<float> frequencies_;  // [ropes, pairs]
    std::vector<float> rope_scales_;
    // BF16 [vocabulary, hidden], owned by the caller; null: streamed, or the rows of the head
    const uint16_t* embedding_;
    Streams target_, draft_;
    std::vector<Layer> layers_;  // the last one has the final norm and the head, at index 0
    std::unique_ptr<stream::Source> source_;  // after layers_, for which it reads: destroyed first
    KeyValues cache_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
    // Shared by the threads, one row each: written in parts, read after a barrier.
    std::vector<float> x_, q_, k_, v_, attended_, gate_, up_, product_;
    std::vector<float> logits_;           // [rows with logits, vocabulary]
    std::vector<float> cosines_, sines_;  // [ropes, PROMPT_ROWS, pairs]
    std::vector<Top> tops_;               // [threads, PROMPT_ROWS]
    std::vector<Pick> picks_;             // [PROMPT_ROWS], of sampled rows
    std::vector<LowDrafter> low_;         // by slot
    bool timed_ = false;                  // true once products are timed
    double product_seconds_ = 0.0;
    Pool pool_;
    std::unique_ptr<ChunkSealer> sealer_;  // null: chunks stay in BF16
};

}  // namespace cassandra
