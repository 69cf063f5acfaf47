// Prepare the input of linear layers, with the same arithmetic for every instruction set.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "linear/linear.h"

namespace cassandra {
namespace {

constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to nearest, ties to even

// Zeroed memory, 64-byte aligned; pages that are never touched take no memory.
class Bytes {
  public:
    Bytes() = default;
    explicit Bytes(int64_t bytes) : memory_(std::calloc(static_cast<size_t>(bytes) + 63, 1)) {
        if (!memory_) throw std::bad_alloc();
    }
    uint8_t* get() const {
        return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory_.get()) + 63) &
                                          ~uintptr_t{63});
    }

  private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> memory_;
};

int group_of(InputKind kind) {
    return kind == InputKind::int8_64 || kind == InputKind::int16_64 ? 64 : 32;
}

int width_of(InputKind kind) {
    if (kind == InputKind::bf16) return 4;
    return kind == InputKind::int8_32 || kind == InputKind::int8_64 ? 1 : 2;
}

void round_bf16(const float* x, int64_t count, float* rounded, uint16_t* words) {
    for (int64_t i = 0; i < count; ++i) {
        words[i] = to_bf16(x[i]);
        rounded[i] = to_float(words[i]);
    }
}

// Return the largest magnitude; NaN if any value is. Bit patterns of magnitudes sort like numbers,
// and those of NaN sort last.
float largest(const float* x, int64_t count) {
    int32_t lanes[8] = {};
    const auto magnitude = [&](int64_t i) {
        int32_t bits;
        std::memcpy(&bits, x + i, 4);
        return bits & 0x7FFFFFFF;
    };
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; ++j) lanes[j] = std::max(lanes[j], magnitude(i + j));
    for (; i < count; ++i) lanes[0] = std::max(lanes[0], magnitude(i));
    float most;
    std::memcpy(&most, std::max_element(lanes, lanes + 8), 4);
    return most;
}

// Quantize a group to integers; return their scale, which is NaN if a value is not finite.
template <class T, int kLimit>
float quantise(const float* x, int64_t count, T* result, int32_t& sum) {
    const float most = largest(x, count);
    sum = 0;
    if (most < 1e-30F) {  // keeps 127 / most finite
        std::fill_n(result, count, T{0});
        return 0;
    }
    if (!std::isfinite(most)) {
        std::fill_n(result, count, T{0});
        return NAN;
    }
    const float factor = static_cast<float>(kLimit) / most;
    int32_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float rounded = (x[i] * factor + kMagic) - kMagic;
        const auto integer = static_cast<int32_t>(rounded);
        result[i] = static_cast<T>(integer);
        total += integer;
    }
    sum = total;
    return most / static_cast<float>(kLimit);
}

}  // namespace

struct Input::Part {
    Bytes values, scales, sums, words;
};

Input::Input(int64_t features)
    : features_(features), padded_((features + 63) / 64 * 64),
      parts_(std::make_unique<Part[]>(kInputKinds)) {
    for (int i = 0; i < kInputKinds; ++i) {
        const auto kind = static_cast<InputKind>(i);
        const int64_t groups = PROMPT_ROWS * padded_ / group_of(kind);
        parts_[i] = {Bytes(PROMPT_ROWS * padded_ * width_of(kind)), Bytes(4 * groups),
                     Bytes(4 * groups), Bytes(i ? 1 : 2 * PROMPT_ROWS * padded_)};
    }
}

Input::~Input() = default;

const void* Input::values(InputKind kind) const {
    return parts_[static_cast<int>(kind)].values.get();
}

const uint16_t* Input::words() const {
    return reinterpret_cast<const uint16_t*>(parts_[0].words.get());
}

const float* Input::scales(InputKind kind) const {
    return reinterpret_cast<const float*>(parts_[static_cast<int>(kind)].scales.get());
}

const int32_t* Input::sums(InputKind kind) const {
    return reinterpret_cast<const int32_t*>(parts_[static_cast<int>(kind)].sums.get());
}

int64_t Input::panel_stride(InputKind kind) const { return padded_ / group_of(kind) * PANEL_ROWS; }

void Input::prepare(InputKind kind, int row, const float* x) {
    Part& part = parts_[static_cast<int>(kind)];
    uint8_t* values = part.values.get() + row * padded_ * width_of(kind);
    if (kind == InputKind::bf16) {
        round_bf16(x, features_, reinterpret_cast<float*>(values),
                   reinterpret_cast<uint16_t*>(part.words.get()) + row * padded_);
        return;
    }
    const int group = group_of(kind);
    const int64_t place = row / PANEL_ROWS * panel_stride(kind) + row % PANEL_ROWS;
    auto* scales = reinterpret_cast<float*>(part.scales.get()) + place;
    auto* sums = reinterpret_cast<int32_t*>(part.sums.get()) + place;
    for (int64_t first = 0; first < features_; first += group) {
        const int64_t count = std::min<int64_t>(group, features_ - first);
        const int64_t g = first / group * PANEL_ROWS;
        scales[g] =
            width_of(kind) == 1
                ? quantise<int8_t, 127>(x + first, count, reinterpret_cast<int8_t*>(values) + first,
                                        sums[g])
                : quantise<int16_t, 32767>(x + first, count,
                                           reinterpret_cast<int16_t*>(values) + first, sums[g]);
    }
}

}  // namespace cassandra
