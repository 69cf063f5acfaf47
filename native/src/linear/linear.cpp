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

// `place` is that of the group, or of the bits of a draft's plane.
LinearKernel kernel_of(Form form, int place) {
    const int number = static_cast<int>(form);
#ifdef CASSANDRA_HAVE_AVX512BF16
    const int words = form == Form::planes ? 3 + place : form < Form::draft5 ? number : -1;
    if (current_isa() >= Isa::avx512bf16 && words >= 0) {
        if (has_amx()) return avx512bf16::amx_kernels[words];
        if (has_fast_dots()) return avx512bf16::dot_kernels[words];
    }
#endif
#ifdef CASSANDRA_HAVE_NEONBF16
    if (current_isa() >= Isa::neonbf16) return neonbf16::linear_kernels.of[number][place];
#endif
    const auto all = []() -> const LinearKernels& { CASSANDRA_RETURN_BEST(linear_kernels); };
    return all().of[number][place];
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
                                       int group, Streams& streams, const Linear* draft) {
    check(out >= 1, "out", out, "at least 1");
    check(in >= 1, "in", in, "at least 1");
    check(group == 32 || group == 64, "group", group, "32 or 64");
    check(static_cast<unsigned>(form) < kForms, "form", static_cast<int>(form), "0 to 6");
    if (form == Form::planes) return create_planes(values, out, in, group, streams, draft);
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

std::unique_ptr<Linear> Linear::create_planes(const uint16_t* values, int64_t out, int64_t in,
                                              int group, Streams& streams, const Linear* draft) {
    std::unique_ptr<Linear> self(new Linear);
    if (!draft) {
        const std::vector<uint16_t> drafts = draft_values(values, out, in, group);
        self->own_draft_ = create(drafts.data(), out, in, Form::draft5, group, streams);
        draft = self->own_draft_.get();
    }
    check(draft->out_ == out && draft->in_features() == in && draft->threads() == streams.threads(),
          "draft", draft->out_, "of the same outputs, inputs and threads");
    self->draft_ = draft;
    self->layout_.form = Form::planes;
    self->layout_.features = in;
    self->layout_.group = draft->layout_.group;
    self->out_ = out;
    self->tile_bytes_ = self->layout_.tile_bytes();
    self->parts_.resize(static_cast<size_t>(streams.threads()));
    const bool odd = draft->form() >= Form::draft5 && draft->layout_.odd;
    if (odd && self->add_rest(values, *draft, streams)) return self;
    return create(values, out, in, Form::bf16, group, streams);
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
    size_t result = escapes_.size() * sizeof(Escape) + escape_ends_.size() * sizeof(size_t);
    for (int thread = 0; thread < threads(); ++thread) result += part_bytes(thread);
    for (const PatchIndex& each : patches_)
        result += 8 * each.starts.size() + 2 * each.counts.size();
    return result + (draft_ ? draft_->bytes() : 0);
}

int Linear::thread_of(int64_t tile) const {
    int thread = threads() - 1;
    while (first_tile(thread) > tile) --thread;
    return thread;
}

std::vector<uint8_t> Linear::tile(int64_t index) const {
    const int thread = thread_of(index);
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

void (*Linear::kernel() const)(const LinearJob&) {
    if (draft_) return kernel_of(layout_.form, draft_->form() == Form::draft4);
    return kernel_of(layout_.form, layout_.group == 64);
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
    job.group = layout_.group;
    if (kind == InputKind::bf16 && (draft_ || rows >= kManyRows))
        job.room = room_for(4 * kTile * job.features);
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
    if (draft_) {
        own.rest = own.tile;
        own.rest_bytes = own.tile_bytes;
        own.patches = own.rest + tile_bytes(thread);
        own.patch_starts = patches_of(thread).starts.data();
        own.patch_counts = patches_of(thread).counts.data();
        own.tile = draft_->part(thread);
        own.tile_bytes = static_cast<int64_t>(draft_->tile_bytes_);
        own.bias = draft_->layout_.bias();
    }
    kernel()(own);
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
            kernel()(job);
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
    for (int64_t index = 0; index < out_; ++index) row(index, result + index * layout_.features);
}

void Linear::row(int64_t index, uint16_t* result) const {
    if (draft_) return patch_row(index, result);
    const int lane = static_cast<int>(index % kTile);
    unpack_row(layout_, tile(index / kTile).data(), lane, result);
    const auto [begin, end] = escapes_of(index / kTile);
    for (const Escape* escape = begin; escape != end; ++escape)
        if (escape->lane == lane) result[escape->feature] = to_bf16(escape->value);
}

}  // namespace cassandra
