// The Verilated encoder as a library: whole batches of segments in one call
// (verif/encoder/bulk.py).
//
// One clock cycle is two evaluations: inputs settle with the clock low, handshakes are read, and
// the clock rises. Sources hold what they have offered; the sinks check the rules of AXI4-Stream.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "Vencoder.h"
#include "verilated.h"
#include "verilated_ports.h"

// Verilator asks for the time of messages; there is none.
double sc_time_stamp() { return 0; }

namespace {

constexpr size_t kLanes = CASSANDRA_LANES;
constexpr size_t kBusBytes = kLanes;       // eight rows of kLanes bits
constexpr size_t kBeatBytes = 2 * kLanes;  // BF16 values
constexpr size_t kPorts = 6;
enum Port { kCommand, kCodebook, kValues, kSpeculation, kVerification, kResult };

// The layouts below are repeated in encoder_bulk.py, which checks their sizes.
struct Segment {
    uint64_t values;  // addresses; that of the codebook is read if codebook_size is not zero
    uint64_t codebook;
    uint64_t regions[2];  // room for the speculation and the verification region
    uint64_t room;        // bytes of each
    uint64_t command;
    uint32_t codebook_size;
    uint32_t count;  // values that are sent
};

struct Outcome {
    uint64_t result;  // the word of m_axis_result
    uint64_t bytes[2];
    uint64_t cycles;  // from the start of the batch to the result
    uint32_t packets[2];
};

struct Options {
    Pattern patterns[kPorts];
    uint64_t seed;
    uint64_t hang_cycles;  // give up after so many cycles in which nothing moved
};

struct Statistics {
    uint64_t cycles;
    PortCount ports[kPorts];
};

enum Status : int {
    kDone = 0,
    kHang = 1,     // nothing moved
    kDropped = 2,  // valid fell before ready
    kChanged = 3,  // payload changed while it waited
    kRoom = 4,     // a region is longer than its room, or comes after its end, or after the batch
};

// The values of each segment as a packet of beats.
class Values {
  public:
    Values(const Segment* segments, size_t count) : segments_(segments), count_(count) {}

    void drive(Vencoder& m, bool may_offer) {
        offered_ = segment_ < count_ && (offered_ || may_offer);
        m.s_axis_values_tvalid = offered_;
        memset(&m.s_axis_values_tdata, 0xA5, kBeatBytes);
        m.s_axis_values_tlast = 1;
        if (!offered_) return;
        const Segment& s = segments_[segment_];
        const size_t left = std::min<size_t>(s.count - at_, kLanes);
        memcpy(&m.s_axis_values_tdata, reinterpret_cast<const uint16_t*>(s.values) + at_, 2 * left);
        m.s_axis_values_tkeep = ~uint64_t{0} >> (64 - 2 * left);
        m.s_axis_values_tlast = at_ + left == s.count;
    }

    void taken() {
        offered_ = false;
        at_ += kLanes;
        if (at_ >= segments_[segment_].count) at_ = 0, ++segment_;
    }

  private:
    const Segment* segments_;
    size_t count_, segment_ = 0;
    uint32_t at_ = 0;
    bool offered_ = false;
};

void drive_book(Vencoder& m, const Segment& s, uint32_t entry) {
    m.s_axis_codebook_tdata = reinterpret_cast<const uint8_t*>(s.codebook)[entry];
    m.s_axis_codebook_tlast = entry + 1 == s.codebook_size;
}

// The rules of a stream: valid stays until ready, and so does the payload.
template <size_t kBytes>
class Rules {
  public:
    Status check(bool valid, bool ready, const void* data, unsigned last) {
        if (waiting_ && !valid) return kDropped;
        if (waiting_ && (last != last_ || memcmp(data_, data, kBytes))) return kChanged;
        waiting_ = valid && !ready;
        if (waiting_) memcpy(data_, data, kBytes), last_ = last;
        return kDone;
    }

  private:
    uint8_t data_[kBytes];
    unsigned last_ = 0;
    bool waiting_ = false;
};

class Harness : public Clocked<Vencoder> {
  public:
    void reset() {
        auto& m = model();
        m.s_axis_command_tvalid = m.s_axis_codebook_tvalid = m.s_axis_values_tvalid = 0;
        m.m_axis_speculation_tready = m.m_axis_verification_tready = m.m_axis_result_tready = 0;
        hold_reset();
    }

    // Encodes a batch; `at` is the segment whose result was awaited at the end.
    template <bool kPatterns>
    Status run(const Segment* segments, size_t count, Outcome* outcomes, const Options& options,
               Statistics& statistics, uint64_t& at) {
        auto& m = model();
        Clearance<kPatterns, kPorts> may(options.patterns, options.seed);
        Control<Vencoder, Segment> control(segments, count);
        Values values(segments, count);
        Rules<kBusBytes> spec_rules, ver_rules;
        Rules<8> result_rules;
        begin();
        at = 0;
        for (uint64_t cycle = 0; at < count; ++cycle) {
            control.drive(m, true, may(kCommand), may(kCodebook));
            values.drive(m, may(kValues));
            m.m_axis_speculation_tready = may(kSpeculation);
            m.m_axis_verification_tready = may(kVerification);
            m.m_axis_result_tready = may(kResult);
            settle();
            count_ports(statistics);
            if (moves(m.s_axis_command_tvalid, m.s_axis_command_tready)) control.command_taken();
            if (moves(m.s_axis_codebook_tvalid, m.s_axis_codebook_tready)) control.book_taken();
            if (moves(m.s_axis_values_tvalid, m.s_axis_values_tready)) values.taken();
            const uint64_t result = m.m_axis_result_tdata;
            // A word belongs to the first segment whose result has not been offered yet.
            const size_t of = at + m.m_axis_result_tvalid;
            Status status = region(m.m_axis_speculation_tvalid, m.m_axis_speculation_tready,
                                   &m.m_axis_speculation_tdata, m.m_axis_speculation_tlast,
                                   spec_rules, 0, of, count, segments, outcomes);
            if (status) return status;
            status = region(m.m_axis_verification_tvalid, m.m_axis_verification_tready,
                            &m.m_axis_verification_tdata, m.m_axis_verification_tlast, ver_rules, 1,
                            of, count, segments, outcomes);
            if (status) return status;
            status = result_rules.check(m.m_axis_result_tvalid, m.m_axis_result_tready, &result, 0);
            if (status) return status;
            if (moves(m.m_axis_result_tvalid, m.m_axis_result_tready)) {
                outcomes[at].result = result;
                outcomes[at].cycles = cycle + 1;
                ++at;
            }
            if (quiet_cycles() > options.hang_cycles) return kHang;
            tick();
        }
        return kDone;
    }

  private:
    Status region(bool valid, bool ready, const void* data, unsigned last, Rules<kBusBytes>& rules,
                  int which, size_t of, size_t count, const Segment* segments, Outcome* outcomes) {
        if (const Status status = rules.check(valid, ready, data, last)) return status;
        if (!moves(valid, ready)) return kDone;
        if (of >= count || outcomes[of].packets[which]) return kRoom;
        uint64_t& bytes = outcomes[of].bytes[which];
        if (bytes + kBusBytes > segments[of].room) return kRoom;
        memcpy(reinterpret_cast<uint8_t*>(segments[of].regions[which]) + bytes, data, kBusBytes);
        bytes += kBusBytes;
        outcomes[of].packets[which] += last;
        return kDone;
    }
    void count_ports(Statistics& statistics) {
        const auto& m = model();
        auto* ports = statistics.ports;
        ++statistics.cycles;
        tally(ports[kCommand], m.s_axis_command_tvalid, m.s_axis_command_tready);
        tally(ports[kCodebook], m.s_axis_codebook_tvalid, m.s_axis_codebook_tready);
        tally(ports[kValues], m.s_axis_values_tvalid, m.s_axis_values_tready);
        tally(ports[kSpeculation], m.m_axis_speculation_tvalid, m.m_axis_speculation_tready);
        tally(ports[kVerification], m.m_axis_verification_tvalid, m.m_axis_verification_tready);
        tally(ports[kResult], m.m_axis_result_tvalid, m.m_axis_result_tready);
    }
};

}  // namespace

extern "C" {

void* cassandra_create() { return new Harness; }

void cassandra_destroy(void* handle) { delete static_cast<Harness*>(handle); }

// Sizes of the structures, so that the caller can check its own.
void cassandra_sizes(uint32_t* sizes) {
    sizes[0] = kLanes, sizes[1] = sizeof(Segment), sizes[2] = sizeof(Outcome);
    sizes[3] = sizeof(Options), sizes[4] = sizeof(Statistics);
}

// Encodes a batch. Every batch starts with a reset: no codebook is loaded.
int cassandra_run(void* handle, const Segment* segments, uint64_t count, Outcome* outcomes,
                  const Options* options, Statistics* statistics, uint64_t* at) {
    auto& harness = *static_cast<Harness*>(handle);
    harness.reset();
    return with_patterns(options->patterns, kPorts, [&](auto patterns) {
        return harness.run<patterns.value>(segments, count, outcomes, *options, *statistics, *at);
    });
}
}
