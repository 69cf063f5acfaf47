// Common parts of a Verilated top's ports: patterns and counts of transfers, the rules of a stream,
// and the order of codebooks and commands.

#ifndef CASSANDRA_BULK_PORTS_H
#define CASSANDRA_BULK_PORTS_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "verilated.h"

namespace {

// A top and its clock: a cycle is two evaluations.
template <class Model> class Clocked {
  protected:
    Clocked() : context_(new VerilatedContext), model_(new Model(context_.get())) {}
    ~Clocked() { model_->final(); }

    void reset(int cycles) {
        model_->rst = 1;
        for (int i = 0; i < cycles; ++i) settle(), tick();
        model_->rst = 0;
    }
    void settle() {
        model_->clk = 0;
        model_->eval();
    }
    void tick() {
        model_->clk = 1;
        model_->eval();
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Model> model_;
};

struct Pattern {
    uint32_t kind, on, off, reserved;
};

struct PortCount {
    uint64_t moved, stalled, starved;  // valid and ready; valid alone; ready alone
};

// The result of a batch; the numbers are repeated in verif/library/bulk.py.
enum Status : int {
    kDone = 0,
    kFlagged = 1,  // a segment was flagged, and the options do not allow more
    kHang = 2,     // nothing moved
    kLimit = 3,    // the last cycle that the options allow
    kDropped = 4,  // valid fell before ready
    kChanged = 5,  // a payload changed while it waited
    kKeep = 6,     // tkeep is not contiguous, short before the last beat, or not zero with tuser
    kCount = 7,    // a good packet with the wrong number of values, or a packet too many
    kRoom = 8,     // a region is longer than its room, or comes after its end, or after the batch
    kBusy = 9,     // `busy` is low while a segment is in flight, or stays when none is
};

struct Random {
    uint64_t state;
    uint32_t below(uint32_t n) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return static_cast<uint32_t>(((state >> 32) * n) >> 32);
    }
};

// The pattern by which a port may move; see verif/library/patterns.py.
struct Activity {
    Pattern pattern{};
    uint32_t left = 0;
    bool active = true;
    bool next(Random& random) {
        if (pattern.kind == 0) return true;
        if (pattern.kind == 1) return random.below(pattern.on + pattern.off) < pattern.on;
        if (left == 0) {
            active = !active;
            const uint32_t longest = active ? pattern.on : pattern.off;
            left = pattern.kind == 3 ? longest : 1 + random.below(longest);
        }
        --left;
        return active;
    }
};

void record(PortCount& port, bool valid, bool ready) {
    port.moved += valid & ready;
    port.stalled += valid & !ready;
    port.starved += !valid & ready;
}

// When each port may move.
template <bool kPatterns, size_t kPorts> class Clearance {
  public:
    Clearance(const Pattern* patterns, uint64_t seed) : random_{seed | 1} {
        for (size_t i = 0; i < kPorts; ++i) activity_[i].pattern = patterns[i];
    }
    bool operator()(size_t port) {
        if constexpr (kPatterns) return activity_[port].next(random_);
        return true;
    }

  private:
    Random random_;
    Activity activity_[kPorts];
};

// Codebooks and commands in their order: a codebook before the command that needs it. The
// function drive_book of a top says what a word of a codebook looks like.
template <typename Model, typename Segment> class Control {
  public:
    Control(const Segment* segments, size_t count) : segments_(segments), count_(count) {}

    size_t segment() const { return segment_; }  // that is next

    // `turn`: whether its turn has come.
    void drive(Model& m, bool turn, bool may_command, bool may_book) {
        turn &= segment_ < count_;
        const bool book = turn && entry_ < segments_[segment_].codebook_size;
        offered_ = turn && (offered_ || (book ? may_book : may_command));
        m.s_axis_codebook_tvalid = book && offered_;
        m.s_axis_command_tvalid = !book && offered_;
        if (!offered_) return;
        if (book)
            drive_book(m, segments_[segment_], entry_);
        else
            m.s_axis_command_tdata = segments_[segment_].command;
    }

    void book_taken() { ++entry_, offered_ = false; }
    void command_taken() { ++segment_, entry_ = 0, offered_ = false; }

  private:
    const Segment* segments_;
    size_t count_, segment_ = 0;
    uint32_t entry_ = 0;  // of the codebook
    bool offered_ = false;
};

// The rules of a stream: valid stays until ready, and so do the payload, `keep` and `flags`.
template <size_t kBytes> class Rules {
  public:
    Status check(bool valid, bool ready, const void* data, uint64_t keep, unsigned flags) {
        if (waiting_ && !valid) return kDropped;
        if (waiting_ && (flags != flags_ || keep != keep_ || memcmp(data_, data, kBytes)))
            return kChanged;
        waiting_ = valid && !ready;
        if (waiting_) memcpy(data_, data, kBytes), keep_ = keep, flags_ = flags;
        return kDone;
    }

  private:
    uint8_t data_[kBytes];
    uint64_t keep_ = 0;
    unsigned flags_ = 0;
    bool waiting_ = false;
};

// A top's run with patterns, or without, which is faster.
template <typename Run> auto with_patterns(const Pattern* patterns, size_t ports, Run run) {
    bool any = false;
    for (size_t i = 0; i < ports; ++i) any |= patterns[i].kind != 0;
    return any ? run(std::true_type{}) : run(std::false_type{});
}

}  // namespace

#endif  // CASSANDRA_BULK_PORTS_H
