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
constexpr size_t kPatch = sizeof(uint16_t);

// One or two tiles whose lines alternate, with their draft.
class Pair {
  public:
    Pair(const LinearLayout& draft, std::vector<std::vector<uint8_t>> tiles, int64_t rows)
        : draft_(draft), tiles_(std::move(tiles)), rows_(rows) {}

    size_t count() const { return tiles_.size(); }
    bool holds(int64_t row, int64_t k) const { return row < rows_ && k < draft_.features; }
    uint8_t low_of(int64_t row, int64_t k, uint16_t value) const {
        return stored_low(bits(), unit(row, k), value);
    }
    uint16_t predicted(int64_t row, int64_t k, uint8_t low) const {
        const int code = code_at(draft_, tile(row), k, static_cast<int>(row % kTile));
        return predicted_word(bits(), code, unit(row, k), low);
    }

  private:
    int bits() const { return draft_.form == Form::draft5 ? 5 : 4; }
    const uint8_t* tile(int64_t row) const {
        return tiles_[static_cast<size_t>(row / kTile)].data();
    }
    uint8_t unit(int64_t row, int64_t k) const {
        return tile(row)[16 * (k / draft_.group) + row % kTile];
    }

    const LinearLayout& draft_;
    std::vector<std::vector<uint8_t>> tiles_;
    int64_t rows_;
};

// Return the place of a low byte among the lines of a pair.
int64_t low_place(int64_t count, int64_t row, int64_t k) {
    return 64 * (count * (k / 4) + row / kTile) +
           place_in_line(static_cast<int>(row % kTile), static_cast<int>(k % 4));
}

// Return row and feature of a part's word in a block that begins with feature 0.
std::pair<int64_t, int64_t> of_word(int64_t count, int64_t part, int64_t place) {
    const int64_t word = kPatchedWords * part + place;
    return {word / 32 % count * kTile + word % 32 / 2, word / (32 * count) * 2 + word % 2};
}

// Patches of one thread, in the order of reading.
class Patches {
  public:
    std::vector<uint8_t> bytes;
    PatchIndex index;
    size_t patched = 0;

    void mark() { index.starts.push_back(static_cast<int64_t>(bytes.size())); }
    void add(const std::vector<std::vector<uint16_t>>& parts) {  // of a block
        size_t rounds = 0;
        for (const auto& patches : parts) {
            rounds = std::max(rounds, patches.size());
            patched += patches.size();
        }
        for (size_t round = 0; round < rounds; ++round)
            for (const auto& patches : parts) {
                const uint16_t patch = round < patches.size() ? patches[round] : 0;
                bytes.push_back(static_cast<uint8_t>(patch));
                bytes.push_back(static_cast<uint8_t>(patch >> 8));
            }
        index.counts.push_back(static_cast<uint16_t>(rounds));
    }
};

// Write the low bytes of a pair's 32 features from `first` on, and the patches of the others.
// Return false if a sign is not that of the draft.
bool pack_block(const Pair& pair, const uint16_t* values, int64_t in, int64_t first, uint8_t* plane,
                Patches& patches) {
    std::vector<std::vector<uint16_t>> parts(pair.count());
    const auto count = static_cast<int64_t>(pair.count());
    for (int64_t part = 0; part < count; ++part)
        for (int64_t place = 0; place < kPatchedWords; ++place) {
            const auto [row, inside] = of_word(count, part, place);
            const int64_t k = first + inside;
            if (!pair.holds(row, k)) continue;
            const uint16_t value = values[row * in + k];
            const uint8_t low = pair.low_of(row, k, value);
            plane[low_place(count, row, k)] = low;
            const int change = (pair.predicted(row, k, low) ^ value) >> 8;
            if (change & 0x80) return false;
            if (change)
                parts[static_cast<size_t>(part)].push_back(
                    patch_of(static_cast<int>(place), static_cast<uint8_t>(change)));
        }
    patches.add(parts);
    return true;
}

}  // namespace

// Pack the rest of the values, whose draft is given; return false if they do not fit.
bool Linear::add_rest(const uint16_t* values, const Linear& draft, Streams& streams) {
    const int64_t in = layout_.features, stored = layout_.stored_features();
    const size_t limit =
        kPatch * static_cast<size_t>(kMostPatches * static_cast<double>(out_ * in));
    std::vector<Patches> patches(static_cast<size_t>(threads()));
    std::vector<std::vector<uint8_t>> planes(patches.size());
    std::atomic<bool> done{true}, fits{true};
    Pool(threads(), false).run([&](int thread) {
        const bool own_done = attempt([&] {
            const auto place = static_cast<size_t>(thread);
            bool good = true;
            std::vector<uint8_t>& plane = planes[place];
            plane.resize(tile_bytes(thread));
            uint8_t* to = plane.data();
            for (int64_t tile = first_tile(thread), end = first_tile(thread + 1); tile < end;) {
                const int64_t count = std::min<int64_t>(2, end - tile), row = kTile * tile;
                patches[place].mark();
                std::vector<std::vector<uint8_t>> tiles;
                for (int64_t i = 0; i < count; ++i) tiles.push_back(draft.tile(tile + i));
                const Pair pair(draft.layout_, std::move(tiles), out_ - row);
                for (int64_t k = 0; k < stored && good; k += 32)
                    good = pack_block(pair, values + row * in, in, k, to, patches[place]);
                to += static_cast<size_t>(count) * tile_bytes_;
                tile += count;
                if (!good || patches[place].bytes.size() > limit) break;
            }
            patches[place].mark();
            if (!good) fits = false;
        });
        if (!own_done) done = false;
    });
    if (!done) throw std::bad_alloc();
    size_t bytes = 0;
    for (Patches& each : patches) {
        bytes += each.bytes.size();
        patched_ += each.patched;
        patches_.push_back(std::move(each.index));
    }
    if (!fits || bytes > limit) return false;
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
        result[k] = pair.predicted(row, k, plane[low_place(count, row, k)]);
    }
    const PatchIndex& index_of = patches_of(thread);
    const int64_t blocks = layout_.stored_features() / 32;
    const uint8_t* patch =
        part(thread) + tile_bytes(thread) + index_of.starts[static_cast<size_t>(number)];
    for (int64_t block = 0; block < blocks; ++block)
        for (int left = index_of.counts[static_cast<size_t>(number * blocks + block)]; left; --left)
            for (int64_t part = 0; part < count; ++part, patch += kPatch) {
                const auto each = static_cast<uint16_t>(patch[0] | patch[1] << 8);
                const auto [of_row, inside] = of_word(count, part, patched_place(each));
                const int64_t k = 32 * block + inside;
                if (of_row == row && k < layout_.features)
                    result[k] = static_cast<uint16_t>(result[k] ^ patched_bits(each) << 8);
            }
}

}  // namespace cassandra
