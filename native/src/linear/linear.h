// Linear layers y = W x for 1 to 128 rows of x: weights in fixed-width forms, kept in the order in
// which they are read (docs/software/kernels.md, "Forms of weights").
//
// A form is a re-encoding of BF16 values that are known in full when a layer is made: draft or
// target values as the codec decodes them. Values that a form cannot hold exactly (as numbers) make
// the layer fall back to Form::bf16; form() tells. So no product ever differs from the packed model
// but by rounding of activations and sums.
//
// A row's result does not depend on how many rows run, on the thread, or on the range asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace cassandra {

constexpr int kMaxRows = 128;  // of a product
constexpr int kPanel = 16;     // rows whose scales and sums lie together
constexpr int kTile = 16;      // output rows of a tile

static inline float to_float(uint16_t pattern) {
    const uint32_t bits = static_cast<uint32_t>(pattern) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The nearest BF16 pattern; ties to even.
static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

enum class Form : int {
    bf16 = 0,      // 16 bits a weight; any values
    packed12 = 1,  // 12: sign and mantissa byte, 4-bit place in a table of exponents; any, see cpp
    packed8 = 2,   // 8: as packed12 with three mantissa bits (drafts of scheme unary, t >= 4)
    draft5 = 3,    // 5 + 8 / group: drafts of mx and exact, t = 4
    draft4 = 4,    // 4 + 8 / group: t = 5
    mx9 = 5,       // 9 + 8 / group: targets of mx
};
constexpr int kForms = 6;

// What a form wants the input as: floats rounded to BF16, or integers with one float scale per
// group of features.
enum class InputKind : int { bf16 = 0, int8_32, int8_64, int16_32, int16_64 };
constexpr int kInputKinds = 5;

// Up to kMaxRows rows of input, prepared once for all layers that take the same kind.
class Input {
  public:
    explicit Input(int64_t features);
    ~Input();
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    // Round or quantise x [features] as a row. Rows may be prepared by different threads.
    // Products with values that are not finite are not finite either.
    void prepare(InputKind kind, int row, const float* x);

    int64_t features() const { return features_; }
    int64_t padded() const { return padded_; }  // features, up to a multiple of 64; zeros follow

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

// Memory for weights, in which what a thread reads lies in the order of reservation: huge pages
// where the system gives them. Make layers in the order in which a pass uses them, and draft and
// target passes in Streams of their own: prefetching runs on from one layer into the next.
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

struct Escape {  // a value that a table form keeps aside
    int64_t feature;
    int32_t lane;
    float value;
};

// How a tile of weights lies in memory (docs/software/kernels.md has the pictures).
struct LinearLayout {
    Form form = Form::bf16;
    int64_t features = 0;  // in
    int group = 32;
    bool odd = false;             // draft5, draft4: codes stand for odd multiples
    std::vector<uint16_t> table;  // packed12, packed8: 32 words
    std::vector<uint8_t> places;  // of a pattern without its sign, to pack with

    int64_t stored_features() const;  // padded as the form needs it
    size_t tile_bytes() const;
    size_t head_bytes() const;  // of its units
    int32_t bias() const;       // of a code, in units of what a kernel sums up; mx9: none
};

// Rows of a matrix that is not kept in memory, for the threads that multiply with it.
class RowSource {
  public:
    virtual ~RowSource() = default;
    // A thread begins to go through its own rows, once more. Returns memory for two tiles of them,
    // 64-byte aligned.
    virtual uint8_t* begin(int thread) = 0;
    // Rows [first, last) as BF16 patterns, row-major, until the thread's next call; it asks for its
    // rows in order. Null if they cannot be had.
    virtual const uint16_t* rows(int thread, int64_t first, int64_t last) = 0;
};

struct LinearJob;  // linear/kernels.h

class Linear {
  public:
    // values: row-major BF16 patterns [out, in]. group: 32 or 64, for draft5, draft4 and mx9 (take
    // 64 for larger groups of the format; ignored by others).
    // Throws std::bad_alloc; std::invalid_argument for sizes below 1 or another group.
    static std::unique_ptr<Linear> create(const uint16_t* values, int64_t out, int64_t in,
                                          Form form, int group, Streams& streams);

    // The same in Form::bf16, of values that come from a source each time. It has no part() and no
    // values(); where the source has nothing more, products are zeros.
    static std::unique_ptr<Linear> create(int64_t out, int64_t in,
                                          std::unique_ptr<RowSource> source, int threads);

    Form form() const { return layout_.form; }  // what it got
    InputKind input() const;
    int64_t out_features() const { return out_; }
    int64_t in_features() const { return layout_.features; }
    int64_t tiles() const { return (out_ + kTile - 1) / kTile; }
    int threads() const { return static_cast<int>(parts_.size()); }
    size_t bytes() const;  // of weights, padding and escapes included
    size_t escapes() const { return escapes_.size(); }

    // Tiles [first, last) of a thread; its outputs are [16 * first, min(16 * last, out)).
    int64_t first_tile(int thread) const { return tiles() * thread / threads(); }

    // y[row * stride + output] for a thread's outputs and rows 0..rows-1 of x, which must have been
    // prepared as input(). Nothing else of y is written.
    void multiply(int thread, int rows, const Input& x, float* y, int64_t stride) const;

    // Where a thread's part begins, and its size without escapes.
    const uint8_t* part(int thread) const { return parts_[static_cast<size_t>(thread)]; }
    size_t part_bytes(int thread) const {
        if (source_) return 0;
        return static_cast<size_t>(first_tile(thread + 1) - first_tile(thread)) * tile_bytes_;
    }

    // The values, row-major [out, in], from the layout. Equal to what was given, except that
    // draft5 and draft4 may return +0 for -0.
    void values(uint16_t* result) const;

  private:
    Linear() = default;
    std::vector<uint8_t> tile(int64_t index) const;
    LinearJob job(int rows, const Input& x, int64_t stride) const;
    void multiply_streamed(int thread, LinearJob job, float* y) const;
    void add_escapes(int64_t first, int64_t last, int rows, const Input& x, float* y,
                     int64_t stride) const;

    // Begin and end of the escapes of a tile.
    std::pair<const Escape*, const Escape*> escapes_of(int64_t tile) const;

    LinearLayout layout_;
    int64_t out_ = 0;
    size_t tile_bytes_ = 0;
    std::vector<const uint8_t*> parts_;  // by thread
    std::vector<Escape> escapes_;        // by tile, then feature
    std::vector<size_t> escape_ends_;    // by tile; empty if there are none
    std::unique_ptr<RowSource> source_;  // of a matrix that is not kept
};

}  // namespace cassandra
