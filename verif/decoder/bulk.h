// The decoder behind verif/tools/bulk.cpp: what its ports are given and what must come of it.

#include <cstring>

#include "Vdecoder.h"

namespace {

using Model = Vdecoder;
constexpr size_t kBeatBytes = 2 * kLanes;  // BF16 values
constexpr size_t kPorts = 5;
enum Port { kCommand, kCodebook, kSpeculation, kVerification, kValues };

// The layouts below are repeated in bulk.py, which checks their sizes when it loads the library.
struct Segment {
    uint64_t speculation;  // addresses
    uint64_t speculation_bytes;
    uint64_t verification;
    uint64_t verification_bytes;
    uint64_t values;    // room for them
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

// The regions of one kind, segment after segment; those that have no words are passed over.
class Regions {
  public:
    Regions(const Segment* segments, size_t count, bool verification, size_t word_bytes)
        : segments_(segments), count_(count), word_bytes_(word_bytes), verification_(verification) {
        skip_empty();
    }

    // Drives tdata, tlast and tvalid; what is offered stays so until it is taken.
    template <typename Data> void drive(Data& data, uint8_t& last, uint8_t& valid, bool may_offer) {
        offered_ = segment_ < count_ && (offered_ || may_offer);
        valid = offered_;
        if (!offered_) {  // data without valid must be ignored
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
        skip_empty();
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
    void skip_empty() {
        while (segment_ < count_ && offset_ >= size()) offset_ = 0, ++segment_;
    }

    const Segment* segments_;
    size_t count_, word_bytes_, segment_ = 0;
    uint64_t offset_ = 0;
    bool verification_, offered_ = false;
};

// A word of a codebook: exponent, whether it is the last, and the user's bit where the port has one
// (only decoders of coded pruned exponents have two codebooks).
template <typename Model> void drive_book(Model& m, const Segment& s, uint32_t entry) {
    const unsigned word = reinterpret_cast<const uint16_t*>(s.codebook)[entry];
    m.s_axis_codebook_tdata = word & 0xFF;
    m.s_axis_codebook_tlast = word >> 8 & 1;
    if constexpr (requires { m.s_axis_codebook_tuser; }) m.s_axis_codebook_tuser = word >> 9;
}

// Packets of values, one for each segment.
class Packets {
  public:
    Packets(const Segment* segments, size_t count, Outcome* outcomes)
        : segments_(segments), count_(count), outcomes_(outcomes) {}

    size_t ended() const { return ended_; }

    // Takes the beat that moves in this cycle; sets `flagged` if it ends a packet with an error.
    Status take(const Model& m, uint64_t cycle, bool& flagged) {
        const uint64_t keep = m.m_axis_values_tkeep;
        const bool last = m.m_axis_values_tlast;
        const size_t bytes = __builtin_popcountll(keep), lanes = bytes / 2;
        flagged = m.m_axis_values_tuser;
        if ((keep & (keep + 1)) != 0 || bytes % 2) return kKeep;
        if (!last && (flagged || bytes != kBeatBytes)) return kKeep;
        if (flagged && keep) return kKeep;
        if (ended_ == count_) return kCount;
        const Segment& segment = segments_[ended_];
        if (values_ + lanes > segment.count) return kCount;
        memcpy(reinterpret_cast<uint16_t*>(segment.values) + values_, &m.m_axis_values_tdata,
               bytes);
        values_ += lanes;
        if (!last) return kDone;
        if (!flagged && values_ != segment.count) return kCount;
        outcomes_[ended_] = {values_, flagged, m.error, 1, cycle + 1};
        values_ = 0;
        return kDone;
    }

    void next() { ++ended_; }

  private:
    const Segment* segments_;
    size_t count_;
    Outcome* outcomes_;
    size_t ended_ = 0;
    uint32_t values_ = 0;  // of the packet in hand
};

// The streams of a batch.
class Streams {
  public:
    Streams(const Segment* segments, size_t count, Outcome* outcomes,
            const Options<kPorts>& options)
        : options_(options), spec_(segments, count, false, sizeof(Model::s_axis_speculation_tdata)),
          ver_(segments, count, true, sizeof(Model::s_axis_verification_tdata)),
          packets_(segments, count, outcomes) {}

    static void idle(Model& m) {
        m.s_axis_command_tvalid = m.s_axis_codebook_tvalid = 0;
        m.s_axis_speculation_tvalid = m.s_axis_verification_tvalid = 0;
        m.m_axis_values_tready = m.clear_error = 0;
    }

    template <typename Visit> static void visit_ports(const Model& m, Visit visit) {
        visit(kCommand, m.s_axis_command_tvalid, m.s_axis_command_tready);
        visit(kCodebook, m.s_axis_codebook_tvalid, m.s_axis_codebook_tready);
        visit(kSpeculation, m.s_axis_speculation_tvalid, m.s_axis_speculation_tready);
        visit(kVerification, m.s_axis_verification_tvalid, m.s_axis_verification_tready);
        visit(kValues, m.m_axis_values_tvalid, m.m_axis_values_tready);
    }

    size_t ended() const { return packets_.ended(); }

    template <typename May> void drive(Model& m, May& may) {
        spec_.drive(m.s_axis_speculation_tdata, m.s_axis_speculation_tlast,
                    m.s_axis_speculation_tvalid, may(kSpeculation));
        ver_.drive(m.s_axis_verification_tdata, m.s_axis_verification_tlast,
                   m.s_axis_verification_tvalid, may(kVerification));
        m.m_axis_values_tready = may(kValues);
        m.clear_error = clear_;
        clear_ = false;
    }

    Status step(const Model& m, uint64_t cycle, const bool* moves) {
        if (moves[kSpeculation]) spec_.taken();
        if (moves[kVerification]) ver_.taken();
        const unsigned flags = m.m_axis_values_tlast | m.m_axis_values_tuser << 1;
        if (const Status status =
                rules_.check(m.m_axis_values_tvalid, moves[kValues], &m.m_axis_values_tdata,
                             m.m_axis_values_tkeep, flags))
            return status;
        if (!moves[kValues]) return kDone;
        bool flagged;
        if (const Status status = packets_.take(m, cycle, flagged)) return status;
        if (flagged && !options_.go_on) return kFlagged;
        clear_ = flagged && options_.serial;  // else it could be the next segment's cause
        if (m.m_axis_values_tlast) packets_.next();
        return kDone;
    }

  private:
    const Options<kPorts>& options_;
    Regions spec_, ver_;
    Rules<kBeatBytes> rules_;
    Packets packets_;
    bool clear_ = false;
};

}  // namespace
