#include "stream/tensor.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace cassandra::stream {

Segments Tensor::segments_of(int64_t first_value, int64_t last_value) const {
    return {first_value / params.segment, codec::ceil_div(last_value, params.segment)};
}

int64_t Tensor::values_of(int64_t segment) const {
    return std::min<int64_t>(params.segment, count - segment * params.segment);
}

Span Tensor::span(Segments segments, int array) const {
    if (segments.first >= segments.last) return {0, 0};
    const uint32_t* first = &directory[5 * segments.first + 2 * array];
    const uint32_t* last = &directory[5 * (segments.last - 1) + 2 * array];
    const int64_t unit = params.superblock, begin = unit * first[0];
    return {begin, unit * (static_cast<int64_t>(last[0]) + last[1]) - begin};
}

int64_t Tensor::absent(Segments segments) const {
    int64_t bytes = 0;
    for (int array = 0; array < ARRAYS; ++array)
        if (kept[array].empty()) bytes += span(segments, array).bytes;
    return bytes;
}

void TensorDecoder::decode(const Tensor& tensor, const Regions& regions, int64_t segment,
                           uint16_t* out) {
    if (!decoder_ || !decoder_->take(tensor.params))
        decoder_ = std::make_unique<codec::Decoder>(tensor.params);
    codec::Region found[ARRAYS] = {};
    for (int array = 0; array < ARRAYS; ++array) {
        const Span own = tensor.span({segment, segment + 1}, array);
        const int64_t before = own.offset - tensor.span(regions.segments, array).offset;
        found[array].bytes = const_cast<uint8_t*>(regions.begins[array]) + before;
        found[array].size = own.bytes;
        found[array].readable = own.bytes + codec::OVERRUN;
    }
    const bool has_mask = tensor.directory[5 * segment + 4] & FLAG_MASK;
    const int cause =
        decoder_->decode({found[0], found[1], tensor.values_of(segment), has_mask}, true, out);
    if (cause != codec::OK)
        throw std::runtime_error(tensor.name + ": segment " + std::to_string(segment) +
                                 " must be one that can be decoded (casspec inspect --verify)");
}

Regions read(const File& file, const Tensor& tensor, Segments segments, uint8_t* room) {
    Regions found{segments, {}};
    for (int array = 0; array < ARRAYS; ++array) {
        const Span own = tensor.span(segments, array);
        if (!tensor.kept[array].empty()) {
            found.begins[array] = tensor.kept[array].data() + own.offset;
        } else {
            found.begins[array] = file.read(tensor.places[array] + own.offset, own.bytes, room);
            room += File::room(own.bytes);
        }
    }
    return found;
}

int64_t room(const Tensor& tensor, Segments segments) {
    int64_t bytes = 0;
    for (int array = 0; array < ARRAYS; ++array)
        if (tensor.kept[array].empty()) bytes += File::room(tensor.span(segments, array).bytes);
    return bytes;
}

}  // namespace cassandra::stream
