// What the bulk harnesses share: the clock of a Verilated top, when its ports move and how often
// they did, and the order of codebooks and commands.

#ifndef CASSANDRA_BULK_PORTS_H
#define CASSANDRA_BULK_PORTS_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "verilated.h"

namespace {

struct Pattern {
    uint32_t kind, on, off, reserved;
};

struct PortCount {
    uint64_t moved, stalled, starved;  // valid and ready; valid alone; ready alone
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

// Whether a port may move in a cycle; see verif/library/patterns.py.
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

void tally(PortCount& port, bool valid, bool ready) {
    port.moved += valid & ready;
    port.stalled += valid & !ready;
    port.starved += !valid & ready;
}

// When each port may move.
template <bool kPatterns, size_t kPorts>
class Clearance {
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

// Codebooks and commands in their order: a codebook before the command that needs it. What a word
// of a codebook and a command look like is drive_book's and drive_command's business.
template <typename Model, typename Segment>
class Control {
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

// A top with its clock, and whether anything has moved lately.
template <typename Model>
class Clocked {
  public:
    Clocked() : context_(new VerilatedContext), model_(new Model(context_.get())) {}
    ~Clocked() { model_->final(); }

  protected:
    Model& model() { return *model_; }
    void settle() {
        model_->clk = 0;
        model_->eval();
    }
    void tick() {
        model_->clk = 1;
        model_->eval();
    }
    void hold_reset() {
        model_->rst = 1;
        for (int i = 0; i < 4; ++i) settle(), tick();
        model_->rst = 0;
    }
    bool moves(bool valid, bool ready) {
        moved_ |= valid && ready;
        return valid && ready;
    }
    // Cycles in which nothing moved, up to this one, whose transfers have all been looked at.
    uint64_t quiet_cycles() {
        quiet_ = moved_ ? 0 : quiet_ + 1;
        moved_ = false;
        return quiet_;
    }
    void begin() { quiet_ = 0, moved_ = false; }

  private:
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Model> model_;
    uint64_t quiet_ = 0;
    bool moved_ = false;  // a transfer in this cycle
};

// A top's run with patterns, or without, which is faster.
template <typename Run>
auto with_patterns(const Pattern* patterns, size_t ports, Run run) {
    bool any = false;
    for (size_t i = 0; i < ports; ++i) any |= patterns[i].kind != 0;
    return any ? run(std::true_type{}) : run(std::false_type{});
}

}  // namespace

#endif  // CASSANDRA_BULK_PORTS_H
