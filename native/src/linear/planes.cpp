// Make the second plane of a matrix, and read it without regard for speed.
#include "linear/planes.h"

#include <algorithm>
#include <cstring>

#include "common/guard.h"
#include "common/pool.h"
#include "linear/layout.h"

namespace cassandra {
namespace {

constexpr double kMostPatches = 0.125;  // of the values; with more, Form::bf16 reads fewer bytes

// One or two tiles whose lines alternate, with their draft.
class Pair {
  public:
    Pair(const LinearLayout& draft, std::vector<std::vector<uint8_t>> tiles, int64_t rows)
        : draft_(draft), tiles_(std::move(tiles)), rows_(rows) {}

    size_t count() const { return tiles_.size(); }
    bool holds(int64_t row, int64_t k) const { return row < rows_ && k < draft_.features; }
    uint8_t predicted(int64_t row, int64_t k, uint8_t low) const {
        const uint8_t* tile = tiles_[static_cast<size_t>(row / kTile)].data();
        const int lane = static_cast<int>(row % kTile);
        const int code = code_at(draft_, tile, k, lane) << (draft_.form == Form::draft5 ? 3 : 4);
        return predicted_byte(code, draft_.bias(), tile[16 * (k / draft_.group) + lane], low);
    }

  private:
    const LinearLayout& draft_;
    std::vector<std::vector<uint8_t>> tiles_;
    int64_t rows_;
};

// Return the place of a low byte among the lines of a pair.
int64_t low_place(int64_t count, int64_t row, int64_t k) {
    return 64 * (count * (k / 4) + row / kTile) + 4 * (row % kTile) + k % 4;
}

// Patches of one thread, in the order of reading.
class Patches {
  public:
    std::vector<uint8_t> bytes;
    PatchIndex index;
    size_t patched = 0;

    void mark() { index.starts.push_back(static_cast<int64_t>(bytes.size())); }
    void begin_block() {
        index.counts.push_back(0);
        last_ = 0;
    }
    // Patch the word at a place of the block; `between` returns the high bytes before it.
    template <class Between> void add(int place, uint8_t high, Between between) {
        while (place - last_ > kFarthest) put(last_ + kFarthest, between(last_ + kFarthest));
        put(place, high);
        ++patched;
    }

    void end_block() {
        while (index.counts.back() % kPatchRun) put(last_, bytes.back());
    }

  private:
    void put(int place, uint8_t high) {
        bytes.push_back(static_cast<uint8_t>(place - last_));
        bytes.push_back(high);
        last_ = place;
        ++index.counts.back();
    }

    int last_ = 0;
};

// Write the low bytes of a pair's 32 features from `first` on, and the patches of the others.
void pack_block(const Pair& pair, const uint16_t* values, int64_t in, int64_t first, uint8_t* plane,
                Patches& patches) {
    const auto count = static_cast<int64_t>(pair.count());
    const auto each = [&](int64_t place, auto take) {  // in the order of words of Form::bf16
        const int64_t row = place / 32 % count * kTile + place % 32 / 2;
        const int64_t k = first + place / (32 * count) * 2 + place % 2;
        const uint16_t value = pair.holds(row, k) ? values[row * in + k] : 0;
        return take(row, k, value);
    };
    const auto high = [&](int64_t place) {
        return each(place, [&](int64_t row, int64_t k, uint16_t value) {
            return pair.holds(row, k) ? static_cast<uint8_t>(value >> 8)
                                      : pair.predicted(row, k, 0);
        });
    };
    patches.begin_block();
    for (int place = 0; place < 512 * count; ++place)
        each(place, [&](int64_t row, int64_t k, uint16_t value) {
            const auto low = static_cast<uint8_t>(value);
            plane[low_place(count, row, k)] = low;
            if (pair.holds(row, k) && pair.predicted(row, k, low) != value >> 8)
                patches.add(place, static_cast<uint8_t>(value >> 8), high);
        });
    patches.end_block();
}

}  // namespace

// Pack the rest of the values, whose draft is given; return false if there are too many patches.
bool Linear::add_rest(const uint16_t* values, const Linear& draft, Streams& streams) {
    const int64_t in = layout_.features, stored = layout_.stored_features();
    const size_t limit = static_cast<size_t>(kMostPatches * static_cast<double>(out_ * in));
    std::vector<Patches> patches(static_cast<size_t>(threads()));
    std::vector<std::vector<uint8_t>> planes(patches.size());
    std::atomic<bool> done{true};
    Pool(threads(), false).run([&](int thread) {
        const bool own_done = attempt([&] {
            const auto place = static_cast<size_t>(thread);
            std::vector<uint8_t>& plane = planes[place];
            plane.resize(tile_bytes(thread));
            uint8_t* to = plane.data();
            for (int64_t tile = first_tile(thread), end = first_tile(thread + 1); tile < end;) {
                const int64_t count = std::min<int64_t>(2, end - tile), row = kTile * tile;
                patches[place].mark();
                std::vector<std::vector<uint8_t>> tiles;
                for (int64_t i = 0; i < count; ++i) tiles.push_back(draft.tile(tile + i));
                const Pair pair(draft.layout_, std::move(tiles), out_ - row);
                for (int64_t k = 0; k < stored; k += 32)
                    pack_block(pair, values + row * in, in, k, to, patches[place]);
                to += static_cast<size_t>(count) * tile_bytes_;
                tile += count;
                if (patches[place].patched > limit) break;
            }
            patches[place].mark();
        });
        if (!own_done) done = false;
    });
    if (!done) throw std::bad_alloc();
    for (Patches& each : patches) {
        patched_ += each.patched;
        patches_.push_back(std::move(each.index));
    }
    if (patched_ > limit) return false;
    for (int thread = 0; thread < threads(); ++thread) {
        const auto place = static_cast<size_t>(thread);
        uint8_t* part = streams.reserve(thread, part_bytes(thread));
        std::copy(planes[place].begin(), planes[place].end(), part);
        std::copy(patches[place].bytes.begin(), patches[place].bytes.end(),
                  part + planes[place].size());
        parts_[place] = part;
    }
    return true;
}

// Read a row of both planes.
void Linear::patch_row(int64_t index, uint16_t* result) const {
    const int64_t tile = index / kTile;
    const int thread = thread_of(tile);
    const int64_t first = first_tile(thread), last = first_tile(thread + 1);
    const int64_t number = (tile - first) / 2, start = first + 2 * number;
    const int64_t count = std::min<int64_t>(2, last - start), row = index - kTile * start;
    std::vector<std::vector<uint8_t>> tiles;
    for (int64_t i = 0; i < count; ++i) tiles.push_back(draft_->tile(start + i));
    const Pair pair(draft_->layout_, std::move(tiles), out_ - kTile * start);
    const uint8_t* plane = part(thread) + static_cast<size_t>(start - first) * tile_bytes_;
    for (int64_t k = 0; k < layout_.features; ++k) {
        const uint8_t low = plane[low_place(count, row, k)];
        result[k] = static_cast<uint16_t>(pair.predicted(row, k, low) << 8 | low);
    }
    const PatchIndex& index_of = patches_of(thread);
    const int64_t blocks = layout_.stored_features() / 32;
    const uint8_t* patch =
        part(thread) + tile_bytes(thread) + index_of.starts[static_cast<size_t>(number)];
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first_k = 32 * block;
        int64_t place = 0;
        for (int left = index_of.counts[static_cast<size_t>(number * blocks + block)]; left;
             --left, patch += 2) {
            place = (place + patch[0]) & (512 * count - 1);
            const int64_t k = first_k + place / (32 * count) * 2 + place % 2;
            if (place / 32 % count * kTile + place % 32 / 2 != row || k >= layout_.features)
                continue;
            result[k] = static_cast<uint16_t>(patch[1] << 8 | (result[k] & 255));
        }
    }
}

}  // namespace cassandra
