#include "linear/linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/isa.h"
#include "linear/kernels.h"
#include "linear/layout.h"

namespace cassandra {
namespace {

static_assert(kPanelRows == kPanel, "panels of an input are those of a job");

LinearKernel kernel_of(Form form, int group) {
    const int number = static_cast<int>(form);
#ifdef CASSANDRA_HAVE_AVX512BF16
    if (current_isa() >= Isa::avx512bf16 && form < Form::draft5) {
        if (has_amx()) return avx512bf16::amx_kernels[number];
        if (has_fast_dots()) return avx512bf16::dot_kernels[number];
    }
#endif
#ifdef CASSANDRA_HAVE_NEONBF16
    if (current_isa() >= Isa::neonbf16) return neonbf16::linear_kernels.of[number][group == 64];
#endif
    const auto all = []() -> const LinearKernels& { CASSANDRA_RETURN_BEST(linear_kernels); };
    return all().of[number][group == 64];
}

constexpr int kManyRows = 32;  // minimum rows for which decoding tiles once pays

// Scratch memory of the calling thread, 64-byte aligned.
uint8_t* room_for(int64_t bytes) {
    thread_local std::vector<uint8_t> room;
    if (room.size() < static_cast<size_t>(bytes) + 63) room.resize(static_cast<size_t>(bytes) + 63);
    return room.data() + (-reinterpret_cast<uintptr_t>(room.data()) & 63);
}

void check(bool good, const char* name, int64_t value, const char* expected) {
    if (!good)
        throw std::invalid_argument(std::string(name) + " must be " + expected + ", not " +
                                    std::to_string(value));
}

}  // namespace

std::unique_ptr<Linear> Linear::create(const uint16_t* values, int64_t out, int64_t in, Form form,
                                       int group, Streams& streams) {
    check(out >= 1, "out", out, "at least 1");
    check(in >= 1, "in", in, "at least 1");
    check(group == 32 || group == 64, "group", group, "32 or 64");
    check(static_cast<unsigned>(form) < kForms, "form", static_cast<int>(form), "0 to 5");
    PackedTiles packed = pack_tiles(values, out, in, form, group, streams.threads());
    const size_t tile_bytes = packed.layout.tile_bytes();
    std::unique_ptr<Linear> self(new Linear);
    self->layout_ = std::move(packed.layout);
    self->layout_.places.clear();
    self->out_ = out;
    self->tile_bytes_ = tile_bytes;
    self->parts_.resize(static_cast<size_t>(streams.threads()));
    for (int thread = 0; thread < streams.threads(); ++thread) {
        const int64_t first = self->first_tile(thread);
        const int64_t count = self->first_tile(thread + 1) - first;
        const uint8_t* tiles = packed.bytes.data() + static_cast<size_t>(first) * tile_bytes;
        uint8_t* part = streams.reserve(thread, self->part_bytes(thread));
        for (int64_t tile = 0; tile < count; ++tile)
            for_lines(self->layout_, tile, count, [&](size_t in_tile, size_t in_part) {
                const uint8_t* from = tiles + static_cast<size_t>(tile) * tile_bytes;
                std::memcpy(part + in_part, from + in_tile, 64);
            });
        self->parts_[static_cast<size_t>(thread)] = part;
    }
    self->escapes_ = std::move(packed.escapes);
    if (!self->escapes_.empty()) self->escape_ends_ = std::move(packed.escape_ends);
    return self;
}

std::unique_ptr<Linear> Linear::create(int64_t out, int64_t in, std::unique_ptr<RowSource> source,
                                       int threads) {
    std::unique_ptr<Linear> self(new Linear);
    self->layout_.features = in;
    self->out_ = out;
    self->tile_bytes_ = self->layout_.tile_bytes();
    self->parts_.resize(static_cast<size_t>(threads));
    self->source_ = std::move(source);
    return self;
}

InputKind Linear::input() const {
    const bool wide = layout_.group == 64;
    switch (layout_.form) {
        case Form::draft5:
        case Form::draft4: return wide ? InputKind::int8_64 : InputKind::int8_32;
        case Form::mx9: return wide ? InputKind::int16_64 : InputKind::int16_32;
        default: return InputKind::bf16;
    }
}

size_t Linear::bytes() const {
    if (source_) return 0;
    return static_cast<size_t>(tiles()) * tile_bytes_ + escapes_.size() * sizeof(Escape) +
           escape_ends_.size() * sizeof(size_t);
}

std::vector<uint8_t> Linear::tile(int64_t index) const {
    int thread = threads() - 1;
    while (first_tile(thread) > index) --thread;
    const int64_t first = first_tile(thread);
    std::vector<uint8_t> result(tile_bytes_);
    for_lines(layout_, index - first, first_tile(thread + 1) - first,
              [&](size_t in_tile, size_t in_part) {
                  std::memcpy(result.data() + in_tile, part(thread) + in_part, 64);
              });
    return result;
}

std::pair<const Escape*, const Escape*> Linear::escapes_of(int64_t tile) const {
    if (escape_ends_.empty()) return {nullptr, nullptr};
    const auto place = static_cast<size_t>(tile);
    return {escapes_.data() + (place ? escape_ends_[place - 1] : 0),
            escapes_.data() + escape_ends_[place]};
}

LinearJob Linear::job(int rows, const Input& x, int64_t stride) const {
    const InputKind kind = input();
    LinearJob job{};
    job.tile_bytes = static_cast<int64_t>(tile_bytes_);
    job.features = layout_.stored_features();
    job.bias = layout_.bias();
    job.table = layout_.table.data();
    job.x = x.values(kind);
    job.words = x.words();
    job.x_stride = x.padded();
    job.scales = x.scales(kind);
    job.sums = x.sums(kind);
    job.panel_stride = x.panel_stride(kind);
    if (kind == InputKind::bf16 && rows >= kManyRows) job.room = room_for(4 * kTile * job.features);
    job.rows = rows;
    job.y_stride = stride;
    return job;
}

void Linear::multiply(int thread, int rows, const Input& x, float* y, int64_t stride) const {
    const int64_t first = first_tile(thread), last = first_tile(thread + 1);
    if (first >= last) return;
    LinearJob own = job(rows, x, stride);
    if (source_) return multiply_streamed(thread, own, y);
    own.tile = part(thread);
    own.tiles = last - first;
    own.last_lanes = std::min<int64_t>(kTile * last, out_) - kTile * (last - 1);
    own.y = y + kTile * first;
    kernel_of(layout_.form, layout_.group)(own);
    if (!escape_ends_.empty()) add_escapes(first, last, rows, x, y, stride);
}

// Multiply two tiles at a time, as kernels expect them.
void Linear::multiply_streamed(int thread, LinearJob job, float* y) const {
    const int64_t end = first_tile(thread + 1);
    uint8_t* const lines = source_->begin(thread);
    for (int64_t at = first_tile(thread); at < end; at += job.tiles) {
        job.tiles = std::min<int64_t>(2, end - at);
        const int64_t first = kTile * at, rows = std::min(kTile * job.tiles, out_ - first);
        job.y = y + first;
        const uint16_t* values = source_->rows(thread, first, first + rows);
        if (values) {
            pack_bf16(layout_, values, rows, lines);
            job.tile = lines;
            job.last_lanes = rows - kTile * (job.tiles - 1);
            kernel_of(layout_.form, layout_.group)(job);
        } else {
            for (int row = 0; row < job.rows; ++row)
                std::fill_n(job.y + row * job.y_stride, rows, 0.0f);
        }
    }
}

void Linear::add_escapes(int64_t first, int64_t last, int rows, const Input& x, float* y,
                         int64_t stride) const {
    const auto* values = static_cast<const float*>(x.values(InputKind::bf16));
    for (int64_t t = first; t < last; ++t) {
        const auto [begin, end] = escapes_of(t);
        for (const Escape* escape = begin; escape != end; ++escape)
            for (int row = 0; row < rows; ++row)
                y[row * stride + kTile * t + escape->lane] +=
                    escape->value * values[row * x.padded() + escape->feature];
    }
}

void Linear::values(uint16_t* result) const {
    for (int64_t t = 0; t < tiles(); ++t) {
        const int lanes = static_cast<int>(std::min<int64_t>(kTile, out_ - kTile * t));
        uint16_t* rows = result + kTile * t * layout_.features;
        unpack_tile(layout_, tile(t).data(), lanes, rows);
        const auto [begin, end] = escapes_of(t);
        for (const Escape* escape = begin; escape != end; ++escape)
            rows[escape->lane * layout_.features + escape->feature] = to_bf16(escape->value);
    }
}

}  // namespace cassandra
