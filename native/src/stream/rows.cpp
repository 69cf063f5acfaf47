#include "stream/rows.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace cassandra::stream {

void StreamedRows::cut(int64_t slab, std::vector<Slab*>& order) {
    const auto threads = static_cast<int64_t>(slabs_.size());
    const int64_t tiles = (out_ + kTile - 1) / kTile;  // dealt like Linear::first_tile
    size_t most = 0;
    for (int64_t thread = 0; thread < threads; ++thread) {
        const int64_t first = kTile * (tiles * thread / threads);
        const int64_t last = std::min(kTile * (tiles * (thread + 1) / threads), out_);
        if (first >= last) continue;
        const Segments own = tensor_.segments_of(value(first), value(last));
        std::vector<Slab>& slabs = slabs_[static_cast<size_t>(thread)];
        for (int64_t at = own.first, end; at < own.last; at = end) {
            for (end = at + 1; end < own.last && tensor_.absent({at, end + 1}) <= slab;) ++end;
            slabs.push_back({&tensor_, {at, end}});
        }
        most = std::max(most, slabs.size());
    }
    for (size_t at = 0; at < most; ++at)
        for (std::vector<Slab>& slabs : slabs_)
            if (at < slabs.size() && tensor_.absent(slabs[at].segments))
                order.push_back(&slabs[at]);
}

int64_t StreamedRows::line_bytes() const {
    LinearLayout layout;
    layout.features = in_;
    return static_cast<int64_t>(2 * layout.tile_bytes());
}

uint8_t* StreamedRows::begin(int thread) {
    Worker& own = source_.workers_[static_cast<size_t>(thread)];
    const Segments segments = slabs_[static_cast<size_t>(thread)].front().segments;
    own.slab = 0;
    own.segment = segments.first;
    own.base = segments.first * tensor_.params.segment;
    own.filled = 0;
    return own.lines->get();
}

const uint16_t* StreamedRows::rows(int thread, int64_t first, int64_t last) {
    Worker& own = source_.workers_[static_cast<size_t>(thread)];
    const int64_t begin = value(first), end = value(last);
    while (own.base + own.filled < end) {
        const int64_t used = std::min(begin - own.base, own.filled);
        if (used > 0) {
            const auto rest = static_cast<size_t>(own.filled - used);
            std::memmove(own.values.data(), own.values.data() + used, rest * sizeof(uint16_t));
            own.base += used;
            own.filled -= used;
        }
        if (!decode_next(own, slabs_[static_cast<size_t>(thread)])) return nullptr;
    }
    return own.values.data() + (begin - own.base);
}

// Append the values of the next segment. Return false on failure.
bool StreamedRows::decode_next(Worker& own, const std::vector<Slab>& slabs) {
    const Slab& slab = slabs[own.slab];
    Regions kept{slab.segments, {}};
    try {
        if (slab.order < 0) {
            kept = stream::read(source_.ring_.file(), tensor_, slab.segments, nullptr);
            own.regions = &kept;
        } else if (own.segment == slab.segments.first) {
            own.regions = source_.ring_.take(slab);
        }
        if (!own.regions) return false;
        own.decoder.decode(tensor_, *own.regions, own.segment, own.values.data() + own.filled);
    } catch (const std::exception& error) {
        source_.ring_.fail(error.what());
        return false;
    }
    own.filled += tensor_.values_of(own.segment);
    if (++own.segment == slab.segments.last) {
        if (slab.order >= 0) source_.ring_.release(slab);
        ++own.slab;
    }
    return true;
}

}  // namespace cassandra::stream
