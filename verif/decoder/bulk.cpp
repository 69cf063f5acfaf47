// The Verilated decoder as a library: whole batches of segments in one call
// (verif/decoder/bulk.py).
//
// One clock cycle is two evaluations: inputs settle with the clock low, handshakes are read, and
// the clock rises. Sources hold what they have offered; the sink checks the rules of AXI4-Stream.

#include <cstdint>
#include <cstring>
#include <string>

#include "Vdecoder.h"
#include "verilated.h"
#include "verilated_ports.h"
#ifdef CASSANDRA_ACTIVITY
#include "verilated_saif_c.h"
#endif

// Verilator asks for the time of messages; there is none.
double sc_time_stamp() { return 0; }

namespace {

constexpr size_t kLanes = CASSANDRA_LANES;
constexpr size_t kBeatBytes = 2 * kLanes;  // BF16 values
constexpr size_t kPorts = 5;
enum Port { kCommand, kCodebook, kSpeculation, kVerification, kValues };

// The layouts below are repeated in bulk.py, which checks their sizes when it loads the library.
struct Segment {
    uint64_t speculation;  // addresses
    uint64_t speculation_bytes;
    uint64_t verification;
    uint64_t verification_bytes;
    uint64_t codebook;  // words that load codebooks before the segment (verif/decoder/codebooks.py)
    uint32_t codebook_size;
    uint32_t command;
    uint32_t count;             // values
    uint32_t use_verification;  // send the verification region
};

struct Outcome {
    uint32_t values;   // that came out
    uint32_t flagged;  // the packet ended with tuser
    uint32_t causes;   // `error` at that moment; cleared then in serial batches only
    uint32_t done;
    uint64_t cycles;  // from the start of the batch to the end of the packet
};

struct Options {
    Pattern patterns[kPorts];
    uint64_t seed;
    uint64_t hang_cycles;   // give up after so many cycles in which nothing moved
    uint64_t limit_cycles;  // stop there whatever happens (0: never)
    uint32_t serial;        // offer a command when the packet before it has ended, not earlier
    uint32_t go_on;         // after a flagged segment
};

struct Statistics {
    uint64_t cycles;
    PortCount ports[kPorts];
};

enum Status : int {
    kDone = 0,
    kFlagged = 1,  // a segment was flagged, and Options::go_on is zero
    kHang = 2,     // nothing moved
    kLimit = 3,    // Options::limit_cycles
    kDropped = 4,  // valid fell before ready
    kChanged = 5,  // payload changed while it waited
    kKeep = 6,     // tkeep is not contiguous, short before the last beat, or not zero with tuser
    kCount = 7,    // a good packet with the wrong number of values, or a packet too many
};

// The regions of one kind, segment after segment; those that have no words are passed over.
class Regions {
  public:
    Regions(const Segment* segments, size_t count, bool verification, size_t word_bytes)
        : segments_(segments), count_(count), word_bytes_(word_bytes), verification_(verification) {
        settle();
    }

    // Drives tdata, tlast and tvalid; what is offered stays so until it is taken.
    template <typename Data>
    void drive(Data& data, uint8_t& last, uint8_t& valid, bool may_offer) {
        offered_ = segment_ < count_ && (offered_ || may_offer);
        valid = offered_;
        if (!offered_) {  // nobody may look
            memset(&data, 0xA5, sizeof(Data));
            last = 1;
            return;
        }
        memcpy(&data, address() + offset_, sizeof(Data));
        last = offset_ + sizeof(Data) >= size();
    }

    void taken() {
        offered_ = false;
        offset_ += word_bytes_;
        settle();
    }

  private:
    uint64_t size() const {
        const Segment& s = segments_[segment_];
        if (!verification_) return s.speculation_bytes;
        return s.use_verification ? s.verification_bytes : 0;
    }
    const uint8_t* address() const {
        const Segment& s = segments_[segment_];
        return reinterpret_cast<const uint8_t*>(verification_ ? s.verification : s.speculation);
    }
    void settle() {
        while (segment_ < count_ && offset_ >= size()) offset_ = 0, ++segment_;
    }

    const Segment* segments_;
    size_t count_, word_bytes_, segment_ = 0;
    uint64_t offset_ = 0;
    bool verification_, offered_ = false;
};

// A word of a codebook: exponent, whether it is the last, and the user's bit where the port has one
// (only decoders of coded pruned exponents have two codebooks).
template <typename Model>
void drive_book(Model& m, const Segment& s, uint32_t entry) {
    const unsigned word = reinterpret_cast<const uint16_t*>(s.codebook)[entry];
    m.s_axis_codebook_tdata = word & 0xFF;
    m.s_axis_codebook_tlast = word >> 8 & 1;
    if constexpr (requires { m.s_axis_codebook_tuser; }) m.s_axis_codebook_tuser = word >> 9;
}

// The rules of a stream: valid stays until ready, and so does the payload.
class Rules {
  public:
    Status check(const Vdecoder& m, bool moves) {
        const bool valid = m.m_axis_values_tvalid;
        if (waiting_ && !valid) return kDropped;
        if (waiting_ && (flags(m) != flags_ || m.m_axis_values_tkeep != keep_ ||
                         memcmp(data_, &m.m_axis_values_tdata, kBeatBytes)))
            return kChanged;
        waiting_ = valid && !moves;
        if (waiting_) {
            memcpy(data_, &m.m_axis_values_tdata, kBeatBytes);
            keep_ = m.m_axis_values_tkeep, flags_ = flags(m);
        }
        return kDone;
    }

  private:
    static unsigned flags(const Vdecoder& m) {
        return m.m_axis_values_tlast | m.m_axis_values_tuser << 1;
    }

    uint8_t data_[kBeatBytes];
    uint64_t keep_ = 0;
    unsigned flags_ = 0;
    bool waiting_ = false;
};

// Packets of values, one for each segment.
class Packets {
  public:
    Packets(const Segment* segments, uint8_t* out, Outcome* outcomes)
        : segments_(segments), out_(out), outcomes_(outcomes) {}

    size_t ended() const { return ended_; }

    // Takes the beat that moves in this cycle; sets `flagged` if it ends a packet with an error.
    Status take(const Vdecoder& m, uint64_t cycle, bool& flagged) {
        const uint64_t keep = m.m_axis_values_tkeep;
        const bool last = m.m_axis_values_tlast;
        const size_t bytes = __builtin_popcountll(keep), lanes = bytes / 2;
        flagged = m.m_axis_values_tuser;
        if ((keep & (keep + 1)) != 0 || bytes % 2) return kKeep;
        if (!last && (flagged || bytes != kBeatBytes)) return kKeep;
        if (flagged && keep) return kKeep;
        const uint32_t count = segments_[ended_].count;
        if (values_ + lanes > count) return kCount;
        memcpy(out_ + 2 * values_, &m.m_axis_values_tdata, bytes);
        values_ += lanes;
        if (!last) return kDone;
        if (!flagged && values_ != count) return kCount;
        outcomes_[ended_] = {values_, flagged, m.error, 1, cycle + 1};
        out_ += 2 * static_cast<size_t>(count);
        values_ = 0;
        return kDone;
    }

    void next() { ++ended_; }

  private:
    const Segment* segments_;
    uint8_t* out_;
    Outcome* outcomes_;
    size_t ended_ = 0;
    uint32_t values_ = 0;  // of the packet in hand
};

// Transitions of every net in a batch, written as SAIF; each net is looked at once in a cycle, when
// all has settled, and counts from zero. In libraries that were built for it; no file otherwise.
#ifdef CASSANDRA_ACTIVITY
class Transitions {
  public:
    Transitions(Vdecoder& m, const std::string& path) {
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
    Transitions(Vdecoder&, const std::string&) {}
    void sample() {}
};
#endif

class Harness : public Clocked<Vdecoder> {
  public:
    void reset() {
        auto& m = model();
        m.s_axis_command_tvalid = m.s_axis_codebook_tvalid = 0;
        m.s_axis_speculation_tvalid = m.s_axis_verification_tvalid = 0;
        m.m_axis_values_tready = m.clear_error = 0;
        hold_reset();
    }

    void write_transitions(const char* path) { transitions_ = path; }

    // Decodes a batch; `at` is the segment whose packet was in hand at the end.
    template <bool kPatterns>
    Status run(const Segment* segments, size_t count, uint8_t* out, Outcome* outcomes,
               const Options& options, Statistics& statistics, uint64_t& at) {
        auto& m = model();
        Clearance<kPatterns, kPorts> may(options.patterns, options.seed);
        Control<Vdecoder, Segment> control(segments, count);
        Regions spec(segments, count, false, sizeof m.s_axis_speculation_tdata);
        Regions ver(segments, count, true, sizeof m.s_axis_verification_tdata);
        Rules rules;
        Packets packets(segments, out, outcomes);
        Transitions transitions(m, transitions_);
        bool clear = false;
        begin();
        for (uint64_t cycle = 0; (at = packets.ended()) < count; ++cycle) {
            if (options.limit_cycles && cycle >= options.limit_cycles) return kLimit;
            // A serial command waits for the packet of the one before it.
            const bool turn = !options.serial || at == control.segment();
            control.drive(m, turn, may(kCommand), may(kCodebook));
            spec.drive(m.s_axis_speculation_tdata, m.s_axis_speculation_tlast,
                       m.s_axis_speculation_tvalid, may(kSpeculation));
            ver.drive(m.s_axis_verification_tdata, m.s_axis_verification_tlast,
                      m.s_axis_verification_tvalid, may(kVerification));
            m.m_axis_values_tready = may(kValues);
            m.clear_error = clear;
            clear = false;
            settle();
            transitions.sample();
            count_ports(statistics);
            if (moves(m.s_axis_command_tvalid, m.s_axis_command_tready)) control.command_taken();
            if (moves(m.s_axis_codebook_tvalid, m.s_axis_codebook_tready)) control.book_taken();
            if (moves(m.s_axis_speculation_tvalid, m.s_axis_speculation_tready)) spec.taken();
            if (moves(m.s_axis_verification_tvalid, m.s_axis_verification_tready)) ver.taken();
            const bool beat = moves(m.m_axis_values_tvalid, m.m_axis_values_tready);
            const bool hangs = quiet_cycles() > options.hang_cycles;
            if (const Status status = rules.check(m, beat)) return status;
            if (beat) {
                bool flagged;
                if (const Status status = packets.take(m, cycle, flagged)) return status;
                if (flagged && !options.go_on) return kFlagged;
                clear = flagged && options.serial;  // else it could be the next segment's cause
                if (m.m_axis_values_tlast) packets.next();
            }
            if (hangs) return kHang;
            tick();
        }
        return kDone;
    }

  private:
    void count_ports(Statistics& statistics) {
        const auto& m = model();
        auto* ports = statistics.ports;
        ++statistics.cycles;
        tally(ports[kCommand], m.s_axis_command_tvalid, m.s_axis_command_tready);
        tally(ports[kCodebook], m.s_axis_codebook_tvalid, m.s_axis_codebook_tready);
        tally(ports[kSpeculation], m.s_axis_speculation_tvalid, m.s_axis_speculation_tready);
        tally(ports[kVerification], m.s_axis_verification_tvalid, m.s_axis_verification_tready);
        tally(ports[kValues], m.m_axis_values_tvalid, m.m_axis_values_tready);
    }

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

// Sizes of the structures, so that the caller can check its own.
void cassandra_sizes(uint32_t* sizes) {
    sizes[0] = kLanes, sizes[1] = sizeof(Segment), sizes[2] = sizeof(Outcome);
    sizes[3] = sizeof(Options), sizes[4] = sizeof(Statistics);
}

// Decodes a batch. `out` has room for the values of all segments; a segment's values start where
// those of the segments before it end. Every batch starts with a reset: no codebook is loaded.
int cassandra_run(void* handle, const Segment* segments, uint64_t count, uint8_t* out,
                  Outcome* outcomes, const Options* options, Statistics* statistics, uint64_t* at) {
    auto& harness = *static_cast<Harness*>(handle);
    harness.reset();
    return with_patterns(options->patterns, kPorts, [&](auto patterns) {
        return harness.run<patterns.value>(segments, count, out, outcomes, *options, *statistics,
                                           *at);
    });
}
}
