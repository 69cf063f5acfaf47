#include "stream/source.h"

#include <algorithm>
#include <cstring>

#include "common/guard.h"
#include "stream/rows.h"

namespace cassandra::stream {
namespace {

constexpr int ROWS = 64;  // cached embedding rows: a round needs those of its drafts again
constexpr int64_t PIECE = 1 << 20;  // bytes of an array read at a time

}  // namespace

int Source::add_tensor(Tensor tensor) {
    tensors_.push_back(std::make_unique<Tensor>(std::move(tensor)));
    return static_cast<int>(tensors_.size()) - 1;
}

void Source::keep(int number, int array) {
    Tensor& tensor = *tensors_[static_cast<size_t>(number)];
    const int64_t segments = static_cast<int64_t>(tensor.directory.size()) / 5;
    const int64_t bytes = tensor.span({0, segments}, array).bytes;
    const Room room(static_cast<size_t>(File::room(PIECE)));
    std::vector<uint8_t> kept(static_cast<size_t>(bytes + codec::OVERRUN));
    for (int64_t at = 0; at < bytes; at += PIECE) {
        const int64_t size = std::min(PIECE, bytes - at);
        const int64_t place = tensor.places[array] + at;
        std::memcpy(kept.data() + at, ring_.file().read(place, size, room.get()),
                    static_cast<size_t>(size));
    }
    tensor.kept[array] = std::move(kept);
}

std::unique_ptr<Linear> Source::matrix(int tensor, int64_t first_value, int64_t out, int64_t in,
                                       bool is_head) {
    auto rows = std::make_unique<StreamedRows>(*this, *tensors_[static_cast<size_t>(tensor)],
                                               first_value, out, in);
    (is_head ? heads_ : matrices_).push_back(rows.get());
    return Linear::create(out, in, std::move(rows), static_cast<int>(workers_.size()));
}

void Source::set_embedding(int tensor, int64_t place, int64_t columns) {
    embedding_ = tensor < 0 ? nullptr : tensors_[static_cast<size_t>(tensor)].get();
    place_ = place;
    columns_ = columns;
    rows_.resize(static_cast<size_t>(ROWS * columns));
    tokens_.assign(ROWS, -1);
}

void Source::start(int64_t slab, int rooms) {
    std::vector<Slab*> order;
    for (StreamedRows* each : matrices_) each->cut(slab, order);
    const size_t head = order.size();
    for (StreamedRows* each : heads_) each->cut(slab, order);
    for (const Slab* each : order) pass_ += each->tensor->absent(each->segments);
    int64_t values = 0, lines = 0;
    for (const auto& all : {matrices_, heads_})
        for (const StreamedRows* each : all) {
            values = std::max(values, each->most_values());
            lines = std::max(lines, each->line_bytes());
        }
    for (Worker& worker : workers_) {
        worker.values.resize(static_cast<size_t>(values));
        worker.lines = std::make_unique<Room>(static_cast<size_t>(std::max<int64_t>(lines, 1)));
    }
    room_bytes_ = static_cast<int64_t>(workers_.size()) * (2 * values + lines);
    ring_.start(std::move(order), head, rooms);
}

void Source::embedding_row(int64_t token, uint16_t* out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto place = static_cast<size_t>(token % ROWS), columns = static_cast<size_t>(columns_);
    uint16_t* const row = &rows_[place * columns];
    if (tokens_[place] != token) {
        tokens_[place] = -1;
        std::memset(row, 0, columns * sizeof *row);
        try {
            read_row(token, row);
            tokens_[place] = token;
        } catch (const std::exception& error) {
            ring_.fail(error.what());
        }
    }
    std::copy_n(row, columns, out);
}

void Source::read_row(int64_t token, uint16_t* out) {
    const int64_t first = token * columns_;
    if (!embedding_) {
        const Room room(static_cast<size_t>(File::room(2 * columns_)));
        const uint8_t* from = ring_.file().read(place_ + 2 * first, 2 * columns_, room.get());
        std::memcpy(out, from, static_cast<size_t>(2 * columns_));
        row_traffic_.bytes += 2 * columns_;
        return;
    }
    const Tensor& tensor = *embedding_;
    const int64_t size = tensor.params.segment;
    const Segments segments = tensor.segments_of(first, first + columns_);
    decoded_.resize(static_cast<size_t>((segments.last - segments.first) * size));
    const Room room(static_cast<size_t>(stream::room(tensor, segments)));
    const Regions regions = read(ring_.file(), tensor, segments, room.get());
    for (int64_t segment = segments.first; segment < segments.last; ++segment)
        decoder_.decode(tensor, regions, segment,
                        decoded_.data() + (segment - segments.first) * size);
    std::copy_n(decoded_.data() + first - segments.first * size, columns_, out);
    row_traffic_.bytes += tensor.absent(segments);
}

Figures Source::figures() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Traffic traffic = ring_.traffic();
    int64_t kept = 0;
    for (const auto& tensor : tensors_)
        for (const auto& array : tensor->kept) kept += static_cast<int64_t>(array.size());
    return {kept, room_bytes_ + static_cast<int64_t>(ring_.room_bytes()), pass_,
            traffic.bytes + row_traffic_.bytes, traffic.seconds};
}

}  // namespace cassandra::stream
