// A Verilated top as a library: whole batches of segments in one call (verif/library/bulk.py). The
// top is what CASSANDRA_TOP includes: verif/decoder/bulk.h or verif/encoder/bulk.h.
//
// One clock cycle is two evaluations: inputs settle with the clock low, handshakes are read, and
// the clock rises. Sources hold what they have offered; the sinks check the rules of AXI4-Stream.

#include <cstdint>
#include <string>

#include "verilated.h"
#include "verilated_ports.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#ifdef CASSANDRA_ACTIVITY
#include "verilated_saif_c.h"
#endif

namespace {

constexpr size_t kLanes = CASSANDRA_LANES;

// The layouts below are repeated in verif/library/bulk.py, which checks their sizes.
template <size_t kPorts> struct Options {
    Pattern patterns[kPorts];
    uint64_t seed;
    uint64_t hang_cycles;   // give up after this number of cycles in which nothing moved
    uint64_t limit_cycles;  // stop there whatever happens (0: never)
    uint32_t serial;        // offer a command when the segment before it has ended, not earlier
    uint32_t go_on;         // after a flagged segment
};

template <size_t kPorts> struct Statistics {
    uint64_t cycles;
    uint64_t busy;  // cycles in which the top was, those behind the last segment among them
    PortCount ports[kPorts];
};

}  // namespace

#include CASSANDRA_TOP

// Verilator needs a time for its messages.
double sc_time_stamp() { return 0; }

namespace {

// Transitions of every net in a batch, written as SAIF; each net is looked at once in a cycle, when
// all has settled, and counts from zero. In libraries that were built for it; no file otherwise.
#ifdef CASSANDRA_ACTIVITY
class Transitions {
  public:
    Transitions(Model& m, const std::string& path) {
        m.contextp()->traceEverOn(true);
        m.trace(&file_, 99);
        file_.open(path.c_str());
    }
    ~Transitions() { file_.close(); }
    void sample() { file_.dump(time_++); }

  private:
    VerilatedSaifC file_;
    uint64_t time_ = 0;
};
#else
struct Transitions {
    Transitions(Model&, const std::string&) {}
    void sample() {}
};
#endif

constexpr uint64_t kRest = 32;  // cycles behind the last segment; in the last one `busy` is low

class Harness : Clocked<Model> {
  public:
    void write_transitions(const char* path) { transitions_ = path; }

    // Writes the counts of lines, branches and changes of bits, if the library counts them.
    void write_counts([[maybe_unused]] const char* path) {
#if VM_COVERAGE
        context_->coveragep()->write(path);
#endif
    }

    void reset() {
        Streams::idle(*model_);
        Clocked::reset(4);
    }

    // Runs a batch; `at` is the segment whose end was awaited at the end.
    template <bool kPatterns>
    Status run(const Segment* segments, size_t count, Outcome* outcomes,
               const Options<kPorts>& options, Statistics<kPorts>& statistics, uint64_t& at) {
        Model& m = *model_;
        Clearance<kPatterns, kPorts> may(options.patterns, options.seed);
        Control<Model, Segment> control(segments, count);
        Streams streams(segments, count, outcomes, options);
        Transitions transitions(m, transitions_);
        uint64_t quiet = 0;  // cycles in which nothing moved
        for (uint64_t cycle = 0, rest = 0; rest < kRest; ++cycle) {
            const size_t ended = streams.ended();
            const bool over = ended == count;  // all that may move is what does not end with it
            if (!over) at = ended;
            rest += over;
            if (!over && options.limit_cycles && cycle >= options.limit_cycles) return kLimit;
            // A serial command waits for the end of the segment before it.
            const bool due = !options.serial || ended == control.segment();
            control.drive(m, due, may(kCommand), may(kCodebook));
            streams.drive(m, may);
            settle();
            if (!over) transitions.sample(), ++statistics.cycles;
            statistics.busy += m.busy;
            if (m.busy ? rest == kRest : ended < control.segment()) return kBusy;
            bool moves[kPorts], any = false;
            Streams::visit_ports(m, [&](size_t port, bool valid, bool ready) {
                if (!over) record(statistics.ports[port], valid, ready);
                any |= moves[port] = valid && ready;
            });
            quiet = any ? 0 : quiet + 1;
            if (moves[kCommand]) control.command_taken();
            if (moves[kCodebook]) control.book_taken();
            if (const Status status = streams.step(m, cycle, moves)) return status;
            if (!over && quiet > options.hang_cycles) return kHang;
            tick();
        }
        return kDone;
    }

  private:
    std::string transitions_;  // file of the next batch
};

}  // namespace

extern "C" {

void* cassandra_create() { return new Harness; }

void cassandra_destroy(void* handle) { delete static_cast<Harness*>(handle); }

// Where batches write the transitions of all nets, if the library was built to count them.
void cassandra_transitions(void* handle, const char* path) {
    static_cast<Harness*>(handle)->write_transitions(path);
}

void cassandra_counts(void* handle, const char* path) {
    static_cast<Harness*>(handle)->write_counts(path);
}

// Sizes of the structures, so that the caller can check its own.
void cassandra_sizes(uint32_t* sizes) {
    sizes[0] = sizeof(Segment), sizes[1] = sizeof(Outcome);
    sizes[2] = sizeof(Options<kPorts>), sizes[3] = sizeof(Statistics<kPorts>);
}

// Runs a batch. Every batch starts with a reset: no codebook is loaded.
int cassandra_run(void* handle, const Segment* segments, uint64_t count, Outcome* outcomes,
                  const Options<kPorts>* options, Statistics<kPorts>* statistics, uint64_t* at) {
    auto& harness = *static_cast<Harness*>(handle);
    harness.reset();
    return with_patterns(options->patterns, kPorts, [&](auto patterns) {
        return harness.run<patterns.value>(segments, count, outcomes, *options, *statistics, *at);
    });
}
}
