#include "linear/linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/isa.h"
#include "linear/kernels.h"
#include "linear/layout.h"

namespace cassandra {
namespace {

std::atomic<int64_t> distances[kForms] = {{8192}, {8192}, {8192}, {8192}, {8192}, {8192}};

const LinearKernels& kernels() {
    switch (current_isa()) {
#ifdef CASSANDRA_HAVE_AVX512BF16
        // Without a matrix unit: vpdpbf16ps is slower than two fused multiplications.
        case Isa::avx512bf16:
            return has_amx() ? linear_kernels_amx : linear_kernels_avx512;
#endif
#ifdef CASSANDRA_HAVE_AVX512
        case Isa::avx512:
            return linear_kernels_avx512;
#endif
#ifdef CASSANDRA_HAVE_AVX2
        case Isa::avx2:
            return linear_kernels_avx2;
#endif
        default:
            return linear_kernels_portable;
    }
}

LinearKernel kernel_of(Form form, int group) {
    const LinearKernels& all = kernels();
    const int wide = group == 64;
    switch (form) {
        case Form::packed12:
            return all.packed12;
        case Form::packed8:
            return all.packed8;
        case Form::draft5:
            return all.draft5[wide];
        case Form::draft4:
            return all.draft4[wide];
        case Form::mx9:
            return all.mx9[wide];
        default:
            return all.bf16;
    }
}

void check(bool good, const char* name, int64_t value, const char* expected) {
    if (!good)
        throw std::invalid_argument(std::string(name) + " must be " + expected + ", not " +
                                    std::to_string(value));
}

}  // namespace

void set_prefetch_distance(Form form, int64_t bytes) { distances[static_cast<int>(form)] = bytes; }

int64_t prefetch_distance(Form form) {
    return distances[static_cast<int>(form)].load(std::memory_order_relaxed);
}

std::unique_ptr<Linear> Linear::create(const uint16_t* values, int64_t out, int64_t in, Form form,
                                       int group, Streams& streams) {
    check(out >= 1, "out", out, "at least 1");
    check(in >= 1, "in", in, "at least 1");
    check(group == 32 || group == 64, "group", group, "32 or 64");
    check(static_cast<unsigned>(form) < kForms, "form", static_cast<int>(form), "0 to 5");
    PackedTiles packed = pack_tiles(values, out, in, form, group, streams.threads());
    const size_t tile_bytes = packed.layout.tile_bytes();
    std::unique_ptr<Linear> self(new Linear);
    self->form_ = packed.layout.form;
    self->out_ = out;
    self->in_ = in;
    self->group_ = group;
    self->odd_ = packed.layout.odd;
    self->table_ = std::move(packed.layout.table);
    self->tile_bytes_ = tile_bytes;
    self->parts_.resize(static_cast<size_t>(streams.threads()));
    for (int thread = 0; thread < streams.threads(); ++thread) {
        const auto first = static_cast<size_t>(self->first_tile(thread)) * tile_bytes;
        const size_t bytes = static_cast<size_t>(self->first_tile(thread + 1)) * tile_bytes - first;
        uint8_t* part = streams.reserve(thread, bytes);
        if (bytes) std::memcpy(part, packed.bytes.data() + first, bytes);
        self->parts_[static_cast<size_t>(thread)] = part;
    }
    if (!packed.escapes.empty()) {
        self->escapes_ = std::move(packed.escapes);
        self->escape_ends_ = std::move(packed.escape_ends);
    }
    return self;
}

InputKind Linear::input() const {
    const bool wide = group_ == 64;
    switch (form_) {
        case Form::draft5:
        case Form::draft4:
            return wide ? InputKind::int8_64 : InputKind::int8_32;
        case Form::mx9:
            return wide ? InputKind::int16_64 : InputKind::int16_32;
        default:
            return InputKind::bf16;
    }
}

size_t Linear::bytes() const {
    return static_cast<size_t>(tiles()) * tile_bytes_ + escapes_.size() * sizeof(Escape) +
           escape_ends_.size() * sizeof(size_t);
}

const uint8_t* Linear::tile(int64_t index) const {
    int thread = threads() - 1;
    while (first_tile(thread) > index) --thread;
    return parts_[static_cast<size_t>(thread)] +
           static_cast<size_t>(index - first_tile(thread)) * tile_bytes_;
}

void Linear::multiply(int thread, int rows, const Input& x, float* y, int64_t stride) const {
    multiply_tiles(first_tile(thread), first_tile(thread + 1), rows, x, y, stride);
}

void Linear::multiply_tiles(int64_t first, int64_t last, int rows, const Input& x, float* y,
                            int64_t stride) const {
    if (first >= last) return;
    const InputKind kind = input();
    LinearLayout layout;  // for its arithmetic
    layout.form = form_;
    layout.features = in_;
    layout.group = group_;
    layout.odd = odd_;
    LinearJob job{};
    job.tile = tile(first);
    job.tiles = last - first;
    job.tile_bytes = static_cast<int64_t>(tile_bytes_);
    job.last_lanes = std::min<int64_t>(kTile * last, out_) - kTile * (last - 1);
    job.features = layout.stored_features();
    job.bias = layout.bias();
    job.table = table_.data();
    job.x = x.values(kind);
    job.words = x.words();
    job.x_stride = x.padded();
    job.scales = x.scales(kind);
    job.sums = x.sums(kind);
    job.group_stride = x.padded() / group_;
    job.rows = rows;
    job.y = y + kTile * first;
    job.y_stride = stride;
    job.prefetch = prefetch_distance(form_);
    kernel_of(form_, group_)(job);
    if (!escape_ends_.empty()) add_escapes(first, last, rows, x, y, stride);
}

void Linear::add_escapes(int64_t first, int64_t last, int rows, const Input& x, float* y,
                         int64_t stride) const {
    const auto* values = static_cast<const float*>(x.values(InputKind::bf16));
    for (int64_t t = first; t < last; ++t) {
        const size_t start = t ? escape_ends_[static_cast<size_t>(t - 1)] : 0;
        for (size_t i = start; i < escape_ends_[static_cast<size_t>(t)]; ++i) {
            const Escape& escape = escapes_[i];
            for (int row = 0; row < rows; ++row)
                y[row * stride + kTile * t + escape.lane] +=
                    escape.value * values[row * x.padded() + escape.feature];
        }
    }
}

void Linear::prefetch(int thread, size_t bytes) const {
    const uint8_t* start = parts_[static_cast<size_t>(thread)];
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(start + at, 0, 3);
}

void Linear::values(uint16_t* result) const {
    LinearLayout layout;
    layout.form = form_;
    layout.features = in_;
    layout.group = group_;
    layout.odd = odd_;
    layout.table = table_;
    for (int64_t t = 0; t < tiles(); ++t) {
        const int lanes = static_cast<int>(std::min<int64_t>(kTile, out_ - kTile * t));
        uint16_t* rows = result + kTile * t * in_;
        unpack_tile(layout, tile(t), lanes, rows);
        const size_t start =
            t && !escape_ends_.empty() ? escape_ends_[static_cast<size_t>(t - 1)] : 0;
        for (size_t i = start; !escape_ends_.empty() && i < escape_ends_[static_cast<size_t>(t)];
             ++i) {
            uint32_t bits;
            std::memcpy(&bits, &escapes_[i].value, 4);
            rows[escapes_[i].lane * in_ + escapes_[i].feature] = static_cast<uint16_t>(bits >> 16);
        }
    }
}

}  // namespace cassandra
