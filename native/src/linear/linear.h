// Linear layers y = W x for 1 to 128 rows of x: weights in fixed-width forms, stored in the order
// in which they are read (docs/software/kernels.md, "Forms of weights").
//
// A form re-encodes BF16 values that are fully known when a layer is created: draft or target
// values as the codec decodes them. If a form cannot hold the values exactly (as numbers), the
// layer falls back to Form::bf16; form() returns the form used. Products therefore differ from the
// packed model only by rounding of activations and sums.
//
// A row's result does not depend on the number of rows, on the thread, or on the requested range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine_constants.h"

namespace cassandra {

constexpr int kTile = 16;  // output rows of a tile

static inline float to_float(uint16_t pattern) {
    const uint32_t bits = static_cast<uint32_t>(pattern) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Round to the nearest BF16 pattern, ties to even.
static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

enum class Form : int {
    bf16 = 0,      // 16 bits a weight; any values
    packed12 = 1,  // 12: sign and mantissa byte, 4-bit place in an exponent table; any values
    packed8 = 2,   // 8: as packed12 with three mantissa bits (drafts of scheme unary, t >= 4)
    draft5 = 3,    // 5 + 8 / group: drafts of mx and exact, t = 4
    draft4 = 4,    // 4 + 8 / group: t = 5
    mx9 = 5,       // 9 + 8 / group: targets of mx
    planes = 6,    // 8 and patches, in addition to a draft of odd multiples; any values
};
constexpr int kForms = 7;

// Input of a form: floats rounded to BF16, or integers with one float scale per group of features.
enum class InputKind : int { bf16 = 0, int8_32, int8_64, int16_32, int16_64 };
constexpr int kInputKinds = 5;

// Up to PROMPT_ROWS rows of input, prepared once for all layers with the same kind.
class Input {
  public:
    explicit Input(int64_t features);
    ~Input();
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    // Round or quantize x [features] as a row. Different threads may prepare different rows.
    // Products with values that are not finite are not finite either.
    void prepare(InputKind kind, int row, const float* x);

    int64_t features() const { return features_; }
    int64_t padded() const { return padded_; }  // features, padded with zeros to 64

    // Row-major [rows, padded] floats or integers, [panels, padded / group, 16] scales and sums.
    const void* values(InputKind kind) const;
    const uint16_t* words() const;  // BF16 patterns of the floats
    const float* scales(InputKind kind) const;
    const int32_t* sums(InputKind kind) const;
    int64_t panel_stride(InputKind kind) const;  // scales from one panel to the next

  private:
    int64_t features_, padded_;
    struct Part;
    std::unique_ptr<Part[]> parts_;
};

// Memory for weights; the data that a thread reads is stored in the order of reservation, in huge
// pages if the system supports them. Create layers in the order in which a pass uses them, and
// draft and target in separate Streams: prefetching continues from one layer into the next.
class Streams {
  public:
    explicit Streams(int threads);
    ~Streams();
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;

    int threads() const { return static_cast<int>(chunks_.size()); }
    // 64-byte aligned, zeroed. Throws std::bad_alloc.
    uint8_t* reserve(int thread, size_t bytes);
    size_t bytes() const { return used_; }  // reserved so far

  private:
    struct Chunk {
        uint8_t* start;
        size_t size, used;
    };
    std::vector<std::vector<Chunk>> chunks_;
    size_t used_ = 0;
};

struct Escape {  // a value that a table form stores separately
    int64_t feature;
    int32_t lane;
    float value;
};

// Where a thread's patches of Form::planes are, after its tiles.
struct PatchIndex {
    std::vector<int64_t> starts;   // of those of each pair of tiles, in bytes, and their end
    std::vector<uint16_t> counts;  // [pairs, blocks of 32 features]
};

// Memory layout of a tile of weights (docs/software/kernels.md has the pictures).
struct LinearLayout {
    Form form = Form::bf16;
    int64_t features = 0;  // in
    int group = 32;
    bool odd = false;             // draft5, draft4: codes stand for odd multiples
    std::vector<uint16_t> table;  // packed12, packed8: 32 words
    std::vector<uint8_t> places;  // place of a pattern without its sign, for packing

    int64_t stored_features() const;  // padded as the form requires
    size_t tile_bytes() const;
    size_t head_bytes() const;  // bytes of its units
    int32_t bias() const;       // of a code, in units of a kernel's sum; mx9: 0
};

// Rows of a matrix that is not kept in memory, read by the threads that multiply with it.
class RowSource {
  public:
    virtual ~RowSource() = default;
    // Restart this thread's iteration over its rows. Returns memory for two tiles of them, 64-byte
    // aligned.
    virtual uint8_t* begin(int thread) = 0;
    // Return rows [first, last) as BF16 patterns, row-major, valid until the thread's next call.
    // Each thread must request its rows in order. Returns null if they are not available.
    virtual const uint16_t* rows(int thread, int64_t first, int64_t last) = 0;
};

struct LinearJob;  // linear/kernels.h

class Linear {
  public:
    // values: row-major BF16 patterns [out, in]. group: 32 or 64, for draft5, draft4 and mx9 (take
    // 64 for larger groups of the format; ignored by others).
    // draft: first plane of Form::planes, which must outlive the layer and have as many threads;
    // without one, the layer makes and owns a draft5 of its values.
    // Throws std::bad_alloc; std::invalid_argument for sizes below 1, another group, or a draft of
    // another shape.
    static std::unique_ptr<Linear> create(const uint16_t* values, int64_t out, int64_t in,
                                          Form form, int group, Streams& streams,
                                          const Linear* draft = nullptr);

    // Create the same layer in Form::bf16 with values that are read from a source each time. It has
    // no part() and no values(); products are zeros if the source fails.
    static std::unique_ptr<Linear> create(int64_t out, int64_t in,
                                          std::unique_ptr<RowSource> source, int threads);

    // Return what the layer keeps beside its parts; not of one with a source or a draft of its own.
    std::vector<uint8_t> state() const;
    // Create a layer from its state, with as many threads; the caller then fills its parts. Their
    // bytes are not checked: no value of them leads a product out of the layer.
    // Throws std::bad_alloc; std::invalid_argument if the state is not that of such a layer.
    static std::unique_ptr<Linear> restore(const uint8_t* state, size_t bytes, int64_t out,
                                           int64_t in, Streams& streams,
                                           const Linear* draft = nullptr);

    Form form() const { return layout_.form; }  // the form used
    InputKind input() const;
    int64_t out_features() const { return out_; }
    int64_t in_features() const { return layout_.features; }
    int64_t tiles() const { return (out_ + kTile - 1) / kTile; }
    int threads() const { return static_cast<int>(parts_.size()); }
    size_t bytes() const;  // that a pass reads, including padding, escapes and a draft's plane
    size_t escapes() const { return escapes_.size() + patched_; }

    // Tiles [first, last) of a thread; its outputs are [16 * first, min(16 * last, out)).
    int64_t first_tile(int thread) const { return tiles() * thread / threads(); }

    // Compute y[row * stride + output] for a thread's outputs and rows 0..rows-1 of x, which must
    // have been prepared as input(). No other element of y is written.
    void multiply(int thread, int rows, const Input& x, float* y, int64_t stride) const;

    // Return the start of a thread's part, and its size without escapes: tiles, then patches.
    const uint8_t* part(int thread) const { return parts_[static_cast<size_t>(thread)]; }
    size_t part_bytes(int thread) const {
        if (source_) return 0;
        return tile_bytes(thread) + (draft_ ? patches_of(thread).starts.back() : 0);
    }

    // Return the values, row-major [out, in], from the layout. They equal the input, except that
    // draft5 and draft4 may return +0 for -0.
    void values(uint16_t* result) const;
    // Return one row of the values [in]; the matrix must be in memory.
    void row(int64_t index, uint16_t* result) const;

  private:
    Linear() = default;
    size_t tile_bytes(int thread) const {
        return static_cast<size_t>(first_tile(thread + 1) - first_tile(thread)) * tile_bytes_;
    }
    const PatchIndex& patches_of(int thread) const { return patches_[static_cast<size_t>(thread)]; }
    int thread_of(int64_t tile) const;
    std::vector<uint8_t> tile(int64_t index) const;
    void (*kernel() const)(const LinearJob&);
    static std::unique_ptr<Linear> create_planes(const uint16_t* values, int64_t out, int64_t in,
                                                 int group, Streams& streams, const Linear* draft);
    bool add_rest(const uint16_t* values, const Linear& draft, Streams& streams);
    void patch_row(int64_t index, uint16_t* result) const;
    template <class Archive, class Self> static void visit(Archive& archive, Self& self);
    void check_state(int64_t out, int64_t in) const;
    LinearJob job(int rows, const Input& x, int64_t stride) const;
    void multiply_streamed(int thread, LinearJob job, float* y) const;
    void add_escapes(int64_t first, int64_t last, int rows, const Input& x, float* y,
                     int64_t stride) const;

    // Return begin and end of the escapes of a tile.
    std::pair<const Escape*, const Escape*> escapes_of(int64_t tile) const;

    LinearLayout layout_;
    int64_t out_ = 0;
    size_t tile_bytes_ = 0;
    std::vector<const uint8_t*> parts_;  // by thread
    std::vector<Escape> escapes_;        // by tile, then feature
    std::vector<size_t> escape_ends_;    // by tile; empty without escapes
    std::unique_ptr<RowSource> source_;  // of a matrix that is not in memory
    const Linear* draft_ = nullptr;      // first plane of Form::planes
    std::unique_ptr<Linear> own_draft_;
    std::vector<PatchIndex> patches_;  // by thread
    size_t patched_ = 0;               // values with a patch
};

}  // namespace cassandra
