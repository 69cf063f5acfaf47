#include "attention/sealer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "codec/decoder.h"
#include "codec/encoder.h"

namespace cassandra {
namespace {

constexpr int EXPONENTS = 256;

SealedForm form_of(const SealedFormat& format) {
    const codec::Params& p = format.params;
    const DraftRule rule = format.whole ? DraftRule::same
                           : p.unary()  ? DraftRule::truncated
                                        : DraftRule::aligned;
    return {rule, p.truncated, p.fill != 0, format.by_token, format.group};
}

// Choose the most frequent exponents, the smaller ones first among equals (docs/format.md, 4.1).
void choose_book(codec::Params& p, const int64_t* counts) {
    int order[EXPONENTS];
    std::iota(order, order + EXPONENTS, 0);
    std::stable_sort(order, order + EXPONENTS, [&](int a, int b) { return counts[a] > counts[b]; });
    for (p.book_size = 0; p.book_size < p.codebook && counts[order[p.book_size]]; ++p.book_size)
        p.book[p.book_size] = static_cast<uint8_t>(order[p.book_size]);
}

// Encodes segments and decodes what a draft reads of them.
class DraftCodec {
  public:
    explicit DraftCodec(const codec::Params& p)
        : encoder_(p, false), decoder_(p),
          region_(codec::Room(p, p.segment).speculation + codec::OVERRUN) {}

    void read(const uint16_t* values, const uint8_t* kept, int64_t count, uint16_t* draft) {
        codec::Region region{};
        region.bytes = region_.data();
        encoder_.speculation(values, kept, nullptr, count, region);
        region.at = 0, region.readable = region.size + codec::OVERRUN;
        if (decoder_.decode({region, {}, count, encoder_.has_mask()}, false, draft) != codec::OK)
            throw std::logic_error("an encoded chunk must decode: please report this");
    }

  private:
    codec::Encoder encoder_;
    codec::Decoder decoder_;
    std::vector<uint8_t> region_;
};

// Keys or values of a layer's heads in the order of the codec: head by head, each by position or by
// dimension.
class LayerValues {
  public:
    LayerValues(const SealedFormat& format, const KeyValues& cache)
        : format_(format), cache_(cache), size_(cache.head_size()),
          values_(static_cast<size_t>(cache.heads()) * count()),
          kept_(format.keep < format.compared * size_ ? values_.size() : 0) {}

    void take(int slot, int chunk, int layer, bool keys) {
        for (int head = 0; head < cache_.heads(); ++head) {
            const ChunkCache from = cache_.chunk(slot, layer, head, chunk * CHUNK);
            each_value(
                [&](int at, int d) { values_[place(head, at, d)] = *from.number(keys, at, d); });
        }
        for (int head = 0; head < cache_.heads() && !kept_.empty(); head += format_.compared)
            for (int at = 0; at < CHUNK; ++at) keep_largest(head, at);
    }

    // Values of a head, and which of them a draft reads (null: all).
    int count() const { return CHUNK * size_; }
    const uint16_t* values(int head) const { return &values_[place(head, 0, 0)]; }
    const uint8_t* kept(int head) const {
        return kept_.empty() ? nullptr : &kept_[place(head, 0, 0)];
    }

    // Write a head's draft values to the order of ChunkCache.
    void arrange(const uint16_t* draft, bool keys, const ChunkCache& to) const {
        each_value([&](int at, int d) { *to.number(keys, at, d) = draft[place(0, at, d)]; });
    }

  private:
    size_t place(int head, int at, int d) const {
        return static_cast<size_t>(head) * count() +
               (format_.by_token ? at * size_ + d : d * CHUNK + at);
    }

    template <class Visit> void each_value(Visit visit) const {
        for (int at = 0; at < CHUNK; ++at)
            for (int d = 0; d < size_; ++d) visit(at, d);
    }

    template <class Visit> void each_compared(int first, int at, Visit visit) const {
        for (int head = first; head < first + format_.compared; ++head)
            for (int d = 0; d < size_; ++d) visit(place(head, at, d));
    }

    // Keep the largest of the values compared, the first ones among equals.
    void keep_largest(int first, int at) {
        compared_.clear();
        each_compared(first, at, [&](size_t i) { compared_.push_back(values_[i] & 0x7FFF); });
        int smallest = 1 << 15, equal = 0;  // of the values kept
        if (format_.keep) {
            const auto last = compared_.begin() + format_.keep - 1;
            std::nth_element(compared_.begin(), last, compared_.end(), std::greater<>());
            smallest = *last;
            equal = 1 + static_cast<int>(std::count(compared_.begin(), last, smallest));
        }
        each_compared(first, at, [&](size_t i) {
            const int magnitude = values_[i] & 0x7FFF;
            kept_[i] = magnitude > smallest || (magnitude == smallest && equal-- > 0);
        });
    }

    const SealedFormat& format_;
    const KeyValues& cache_;
    const int size_;
    std::vector<uint16_t> values_;
    std::vector<uint8_t> kept_;
    std::vector<int> compared_;
};

}  // namespace

ChunkSealer::ChunkSealer(const SealedFormat& format, KeyValues& cache, Pool& pool)
    : format_(format), form_(form_of(format)), cache_(cache), pool_(pool) {
    for (bool keys : {false, true}) groups_[keys] = groups_of(form_, keys, cache.padded());
}

void ChunkSealer::seal(int slot, int position) {
    for (int chunk; (chunk = cache_.unsealed(slot, position)) >= 0;) {
        const int parts = cache_.layers() * cache_.heads();
        auto made = std::make_unique<SealedChunk>(form_, parts, cache_.padded());
        for (bool keys : {true, false}) {
            const codec::Params params = params_of(slot, chunk, keys);
            pool_.run_guarded([&](int thread) { fill(*made, slot, chunk, keys, params, thread); });
        }
        cache_.put(slot, chunk, std::move(made));
    }
}

// Return the parameters of a head's keys or values.
codec::Params ChunkSealer::params_of(int slot, int chunk, bool keys) {
    codec::Params params = format_.params;
    params.segment = CHUNK * cache_.head_size();
    if (!params.unary() || format_.whole) return params;
    std::vector<std::array<int64_t, 2 * EXPONENTS>> counts(pool_.threads());
    pool_.run_guarded([&](int thread) {
        LayerValues values(format_, cache_);
        const Share share(cache_.layers(), thread, pool_.threads());
        for (int layer = share.first; layer < share.last; ++layer) {
            values.take(slot, chunk, layer, keys);
            for (int head = 0; head < cache_.heads(); ++head)
                codec::count_exponents(values.values(head), values.kept(head), values.count(),
                                       counts[thread].data());
        }
    });
    int64_t kept[EXPONENTS] = {};
    for (const auto& own : counts)
        for (int e = 0; e < EXPONENTS; ++e) kept[e] += own[EXPONENTS + e];
    choose_book(params, kept);
    return params;
}

void ChunkSealer::fill(SealedChunk& made, int slot, int chunk, bool keys,
                       const codec::Params& params, int thread) const {
    LayerValues values(format_, cache_);
    DraftCodec codec(params);
    std::vector<uint16_t> flat(values.count()), draft(CHUNK * cache_.padded());
    const Share share(cache_.layers(), thread, pool_.threads());
    for (int layer = share.first; layer < share.last; ++layer) {
        if (!format_.whole) values.take(slot, chunk, layer, keys);
        for (int head = 0; head < cache_.heads(); ++head) {
            const ChunkCache from = cache_.chunk(slot, layer, head, chunk * CHUNK);
            const uint16_t* const target = keys ? from.keys : from.values;
            if (!format_.whole) {
                codec.read(values.values(head), values.kept(head), values.count(), flat.data());
                values.arrange(flat.data(), keys, {draft.data(), draft.data(), cache_.padded()});
            }
            made.fill(layer * cache_.heads() + head, keys, groups_[keys], target,
                      format_.whole ? target : draft.data());
        }
    }
}

}  // namespace cassandra
