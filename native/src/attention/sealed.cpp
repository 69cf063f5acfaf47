#include "attention/sealed.h"

#include <algorithm>
#include <numeric>

#include "common/isa.h"

namespace cassandra {
namespace {

constexpr int FARTHEST = 15;  // largest exponent distance that fits four bits
constexpr int FEW = 256;      // a choice is accepted if at most one value in FEW is unusual

inline int exponent_of(uint16_t value) { return value >> 7 & 0xFF; }

// Compute the planes of one part.
class Sealing {
  public:
    Sealing(const SealedForm& form, bool keys, int padded, const std::vector<uint32_t>& groups,
            const uint16_t* target, const uint16_t* draft)
        : form_(form), keys_(keys), padded_(padded), count_(CHUNK * padded), groups_(groups),
          target_(target), draft_(draft), high_(count_), low_(count_ / 2),
          exponents_(exponent_count(form, padded)), opened_(count_) {}

    void run() {
        choose_exponents();
        encode();
        find_mask();
        find_unusual();
    }

    std::vector<uint8_t> planes() const {
        std::vector<uint8_t> all = high_;
        all.insert(all.end(), low_.begin(), low_.end());
        all.insert(all.end(), exponents_.begin(), exponents_.end());
        return all;
    }
    std::vector<uint32_t> mask;
    std::vector<Unusual> unusual;

  private:
    size_t group(int place) const { return groups_[place]; }

    // Choose the exponents with the fewest unusual values: the largest of a group, as encoders
    // choose by default, one below it, or the minimum that the format allows for subnormals.
    void choose_exponents() {
        const std::vector<uint8_t> largest = largest_exponents();
        std::vector<uint8_t> best = largest;
        std::vector<int> fewest(largest.size(), CHUNK * padded_);
        for (int below = 0; below < (form_.rule == DraftRule::aligned ? 3 : 1); ++below) {
            for (size_t g = 0; g < largest.size(); ++g)
                exponents_[g] = candidate(largest[g], below);
            const std::vector<int> wrong = wrong_values();
            const int64_t total = std::accumulate(wrong.begin(), wrong.end(), int64_t{0});
            if (below == 0 && total * FEW < count_) return;
            for (size_t g = 0; g < largest.size(); ++g)
                if (wrong[g] < fewest[g]) fewest[g] = wrong[g], best[g] = exponents_[g];
        }
        exponents_ = best;
    }

    // Zero is reserved for groups of only zeros, which draft as zeros.
    static uint8_t candidate(int largest, int below) {
        if (largest == 0) return 0;
        return static_cast<uint8_t>(below == 2 ? std::max(largest, 9)
                                               : std::max(largest - below, 1));
    }

    std::vector<uint8_t> largest_exponents() const {
        std::vector<uint8_t> largest(exponents_.size());
        for (int i = 0; i < count_; ++i) {
            if (target_[i] == 0 && draft_[i] == 0) continue;
            uint8_t& found = largest[group(i)];
            const int exponent = draft_[i] == 0 ? 1 : exponent_of(target_[i]);
            if (exponent < 255) found = static_cast<uint8_t>(std::max({1, +found, exponent}));
        }
        return largest;
    }

    // Count the values by group that the planes get wrong, except those that a mask fixes.
    std::vector<int> wrong_values() {
        encode();
        std::vector<int> wrong(exponents_.size());
        open(true);
        for (int i = 0; i < count_; ++i) wrong[group(i)] += opened_[i] != draft_[i] && draft_[i];
        open(false);
        for (int i = 0; i < count_; ++i) wrong[group(i)] += opened_[i] != target_[i];
        return wrong;
    }

    void encode() {
        std::fill(low_.begin(), low_.end(), uint8_t{0});
        for (int i = 0; i < count_; ++i) {
            const int exponent = exponent_of(target_[i]);
            const int distance = std::clamp(exponents_[group(i)] - exponent, 0, FARTHEST);
            const int sign = target_[i] >> 15, mantissa = target_[i] & 0x7F;
            high_[i] = static_cast<uint8_t>(distance << 4 | sign << 3 | mantissa >> 4);
            const int lane = i % LINE, nibble = (mantissa & 15) << (lane < LINE / 2 ? 0 : 4);
            uint8_t& byte = low_[i / LINE * (LINE / 2) + lane % (LINE / 2)];
            byte = static_cast<uint8_t>(byte | nibble);
        }
    }

    void open(bool draft) {
        const SealedPart part = {
            high_.data(), low_.data(), exponents_.data(), mask.empty() ? nullptr : mask.data(),
            nullptr,      0,           padded_,           keys_};
        sealed_kernels().open(form_, part, draft, 0, CHUNK / BLOCK, opened_.data());
    }

    void find_mask() {
        open(true);
        std::vector<uint32_t> found(count_ / LINE, ~uint32_t{0});
        bool any = false;
        for (int i = 0; i < count_; ++i) {
            if (draft_[i] != 0 || opened_[i] == 0) continue;
            found[i / LINE] &= ~(uint32_t{1} << i % LINE);
            any = true;
        }
        if (any) mask = found;
    }

    void find_unusual() {
        open(true);
        std::vector<bool> wrong(count_);
        for (int i = 0; i < count_; ++i) wrong[i] = opened_[i] != draft_[i];
        open(false);
        for (int i = 0; i < count_; ++i)
            if (wrong[i] || opened_[i] != target_[i])
                unusual.push_back({static_cast<uint16_t>(i), target_[i], draft_[i]});
    }

    const SealedForm form_;
    const bool keys_;
    const int padded_, count_;
    const std::vector<uint32_t>& groups_;
    const uint16_t *target_, *draft_;
    std::vector<uint8_t> high_, low_, exponents_;
    std::vector<uint16_t> opened_;
};

}  // namespace

const SealedKernels& sealed_kernels() { CASSANDRA_RETURN_BEST(sealed_kernels); }

SealedChunk::SealedChunk(const SealedForm& form, int parts, int padded)
    : form_(form), padded_(padded), parts_(static_cast<size_t>(2) * parts) {}

void SealedChunk::fill(int number, bool keys, const std::vector<uint32_t>& groups,
                       const uint16_t* target, const uint16_t* draft) {
    Sealing sealing(form_, keys, padded_, groups, target, draft);
    sealing.run();
    parts_[2 * number + keys] = {sealing.planes(), sealing.mask, sealing.unusual};
}

std::vector<uint32_t> groups_of(const SealedForm& form, bool keys, int padded) {
    std::vector<uint32_t> groups;
    for (int i = 0; i < CHUNK * padded; ++i)
        groups.push_back(static_cast<uint32_t>(group_of(form, keys, padded, i)));
    return groups;
}

SealedPart SealedChunk::part(int number, bool keys) const {
    const Part& part = parts_[2 * number + keys];
    const size_t values = static_cast<size_t>(CHUNK) * padded_;
    const uint8_t* planes = part.planes.data();
    return {planes,
            planes + values,
            planes + values + values / 2,
            part.mask.empty() ? nullptr : part.mask.data(),
            part.unusual.data(),
            static_cast<int>(part.unusual.size()),
            padded_,
            keys};
}

size_t SealedChunk::bytes() const {
    size_t total = 0;
    for (const Part& part : parts_)
        total += part.planes.size() + part.mask.size() * sizeof(uint32_t) +
                 part.unusual.size() * sizeof(Unusual);
    return total;
}

}  // namespace cassandra
