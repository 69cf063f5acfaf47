// Kernels of Form::planes: blocks of 32 features become lines of Form::bf16 in the first-level
// cache, are patched there, and are multiplied as these. Included only by the kernel files.
#pragma once

#include "linear/kernels.h"
#include "linear/planes.h"

namespace cassandra {
namespace CASSANDRA_ISA {

// Bytes that are prefetched ahead: four blocks of two tiles. Expanding takes longer than reading.
constexpr int kCodesAhead = 2560, kRestAhead = 4096;

// Lines of Form::bf16 that were just written: nothing to prefetch.
template <class V> struct Lines : Bf16<V> {
    static constexpr bool kPrefetched = false;
};

// Reads N tiles of both planes, block by block.
template <class V, int BITS, int N> class Expander {
  public:
    static constexpr int kBytes = 1024 * N;  // of a block as Form::bf16

    Expander(const LinearJob& job, const uint8_t* data)
        : group_(job.group), highs_(V::load_highs(kHighs.all)), units_(data) {
        const int64_t tile = (data - job.tile) / job.tile_bytes;
        rest_ = job.rest + tile * job.rest_bytes;
        patches_ = job.patches + job.patch_starts[tile / 2];
        counts_ = job.patch_counts + tile / 2 * (job.features / 32);
        const auto head = N * scale_bytes(job.features / job.group);
        for (size_t line = 0; line < head; line += 64, data += 64) prefetch_lines<1>(data);
        codes_ = data;
    }

    // Write the next block to a room.
    CASSANDRA_INLINE void next(uint8_t* room) {
        Groups groups;
        CASSANDRA_UNROLL
        for (int part = 0; part < N * V::kParts; ++part) {
            const int own = 64 * (part / V::kParts) + kLanes<V> * (part % V::kParts);
            V::group_sums(units_ + own, group_sum(BITS, 0), groups.highs[part],
                          groups.offsets[part]);
        }
        const uint8_t *codes = codes_, *rest = rest_;  // members are loaded after each store
        expand<0>(room, groups, codes, rest);
        expand<1>(room, groups, codes, rest);
        expand<2>(room, groups, codes, rest);
        expand<3>(room, groups, codes, rest);
        codes_ = codes + N * Codes::kBytes;
        rest_ = rest + N * 512;
        features_ += 32;
        if ((features_ & (group_ - 1)) == 0)  // a group, and a line of four groups' units, ends
            units_ += (features_ & (4 * group_ - 1)) == 0 ? 64 * N - 48 : 16;
        patch(room);
    }

  private:
    using Codes = Draft<V, 1, N, 1, BITS>;
    static constexpr HighsOfCodes kHighs = highs_of_codes(BITS);

    struct Groups {  // of a block, by part
        typename V::B highs[N * V::kParts], offsets[N * V::kParts];
    };

    // Write features 8 p to 8 p + 7.
    template <int p>
    CASSANDRA_INLINE void expand(uint8_t* room, const Groups& groups, const uint8_t*& codes,
                                 const uint8_t*& rest) {
        prefetch_lines<N, kCodesAhead>(codes, 64 * N * p);
        if (BITS == 5 && p == 3) prefetch_lines<N, kCodesAhead>(codes, 256 * N);
        prefetch_lines<2 * N, kRestAhead>(rest, 128 * N * p);
        CASSANDRA_UNROLL
        for (int part = 0; part < N * V::kParts; ++part) {
            typename V::B highs[2], words[2];
            const int own = kPartBytes<V> * part;
            look_up<p>(codes + own, highs);
            CASSANDRA_UNROLL
            for (int half = 0; half < 2; ++half) {
                const typename V::B low = V::load(rest + 64 * N * (2 * p + half) + own);
                V::interleave(low, V::add_bytes(highs[half], groups.highs[part]), words[0],
                              words[1]);
                uint8_t* const to = room + 64 * N * (4 * p + 2 * half) + own;
                V::put(to, V::add_words(words[0], groups.offsets[part]));
                V::put(to + 64 * N, V::add_words(words[1], groups.offsets[part]));
            }
        }
    }

    // Look up the bytes of the codes of two vectors.
    template <int p>
    CASSANDRA_INLINE void look_up(const uint8_t* codes, typename V::B (&highs)[2]) const {
        if constexpr (V::kLooksUpNibbles) {
            V::template look_up_nibbles<BITS, p>(highs_, codes + 64 * N * p, codes + 256 * N,
                                                 highs);
        } else {
            Codes::template split<p>(codes, highs[0], highs[1]);
            for (auto& each : highs)
                each = V::by_pairs(V::template look_up_codes<8 - BITS>(highs_, each));
        }
    }

    CASSANDRA_INLINE void patch(uint8_t* room) {
        const uint8_t* patches = patches_;
        for (int left = *counts_++; left > 0; --left, patches += 2 * N) {
            CASSANDRA_UNROLL
            for (int part = 0; part < N; ++part) {
                uint16_t patch;
                std::memcpy(&patch, patches + 2 * part, sizeof patch);
                room[2 * (kPatchedWords * part + patched_place(patch)) + 1] ^= patched_bits(patch);
            }
        }
        patches_ = patches;
    }

    const int64_t group_;
    const typename V::Highs highs_;
    const uint8_t *units_, *codes_, *rest_, *patches_;
    const uint16_t* counts_;
    int64_t features_ = 0;
};

// The blocks of tiles, each written one block before it is returned: its loads would wait for
// stores that are not complete.
template <class V, int BITS> struct Ahead {
    template <int N> class Of {
      public:
        Of(const LinearJob& job, const uint8_t* data)
            : expander_(job, data), left_(job.features / 32 - 1) {
            expander_.next(rooms_[0]);
        }
        CASSANDRA_INLINE const uint8_t* next() {
            const uint8_t* ready = rooms_[at_];
            at_ ^= 1;
            if (left_-- > 0) expander_.next(rooms_[at_]);
            return ready;
        }

      private:
        Expander<V, BITS, N> expander_;
        int64_t left_;
        int at_ = 0;
        alignas(64) uint8_t rooms_[2][1024 * N];
    };
};

// Write all blocks of N tiles.
template <class V, int BITS, int N>
void expand_tiles(const LinearJob& job, const uint8_t* data, uint8_t* to) {
    Expander<V, BITS, N> expander(job, data);
    for (int64_t k = 0; k < job.features; k += 32, to += 1024 * N) expander.next(to);
}

// More rows than the registers hold take turns over tiles that are written once.
template <class V, int BITS, template <class, int, int> class Sums>
void run_planes(const LinearJob& job) {
    using Whole = Words<V, Lines, Sums>;
    if (job.rows <= Whole::kMostRows) return run<Words<V, Lines, Sums, Ahead<V, BITS>>>(job);
    for_tiles(job, [&](auto count, const uint8_t* data, float* y, int64_t last_lanes) {
        constexpr int N = decltype(count)::value;
        expand_tiles<V, BITS, N>(job, data, job.room);
        all_rows<Whole, N>(job, job.room, y, last_lanes);
    });
}

}  // namespace CASSANDRA_ISA
}  // namespace cassandra
