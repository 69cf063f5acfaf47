// The encoder behind verif/tools/bulk.cpp: what its ports are given and what must come of it.

#include <algorithm>
#include <cstring>

#include "Vencoder.h"

namespace {

using Model = Vencoder;
constexpr size_t kBusBytes = kLanes;                               // eight rows of kLanes bits
constexpr size_t kWordBytes = sizeof(Model::s_axis_values_tdata);  // BF16 values
constexpr size_t kPace = kWordBytes / 2;
constexpr size_t kPorts = 6;
enum Port { kCommand, kCodebook, kValues, kSpeculation, kVerification, kResult };

// The layouts below are repeated in bulk.py, which checks their sizes when it loads the library.
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

// The values of each segment as a packet of words.
class Values {
  public:
    Values(const Segment* segments, size_t count) : segments_(segments), count_(count) {}

    void drive(Model& m, bool may_offer) {
        offered_ = segment_ < count_ && (offered_ || may_offer);
        m.s_axis_values_tvalid = offered_;
        memset(&m.s_axis_values_tdata, 0xA5, kWordBytes);
        m.s_axis_values_tlast = 1;
        if (!offered_) return;
        const Segment& s = segments_[segment_];
        const size_t left = std::min<size_t>(s.count - at_, kPace);
        memcpy(&m.s_axis_values_tdata, reinterpret_cast<const uint16_t*>(s.values) + at_, 2 * left);
        m.s_axis_values_tkeep = ~uint64_t{0} >> (64 - 2 * left);
        m.s_axis_values_tlast = at_ + left == s.count;
    }

    void taken() {
        offered_ = false;
        at_ += kPace;
        if (at_ >= segments_[segment_].count) at_ = 0, ++segment_;
    }

  private:
    const Segment* segments_;
    size_t count_, segment_ = 0;
    uint32_t at_ = 0;
    bool offered_ = false;
};

void drive_book(Model& m, const Segment& s, uint32_t entry) {
    m.s_axis_codebook_tdata = reinterpret_cast<const uint8_t*>(s.codebook)[entry];
    m.s_axis_codebook_tlast = entry + 1 == s.codebook_size;
}

// The streams of a batch.
class Streams {
  public:
    Streams(const Segment* segments, size_t count, Outcome* outcomes, const Options<kPorts>&)
        : segments_(segments), count_(count), outcomes_(outcomes), values_(segments, count) {}

    static void idle(Model& m) {
        m.s_axis_command_tvalid = m.s_axis_codebook_tvalid = m.s_axis_values_tvalid = 0;
        m.m_axis_speculation_tready = m.m_axis_verification_tready = m.m_axis_result_tready = 0;
    }

    template <typename Visit> static void visit_ports(const Model& m, Visit visit) {
        visit(kCommand, m.s_axis_command_tvalid, m.s_axis_command_tready);
        visit(kCodebook, m.s_axis_codebook_tvalid, m.s_axis_codebook_tready);
        visit(kValues, m.s_axis_values_tvalid, m.s_axis_values_tready);
        visit(kSpeculation, m.m_axis_speculation_tvalid, m.m_axis_speculation_tready);
        visit(kVerification, m.m_axis_verification_tvalid, m.m_axis_verification_tready);
        visit(kResult, m.m_axis_result_tvalid, m.m_axis_result_tready);
    }

    size_t ended() const { return ended_; }

    template <typename May> void drive(Model& m, May& may) {
        values_.drive(m, may(kValues));
        m.m_axis_speculation_tready = may(kSpeculation);
        m.m_axis_verification_tready = may(kVerification);
        m.m_axis_result_tready = may(kResult);
    }

    Status step(const Model& m, uint64_t cycle, const bool* moves) {
        if (moves[kValues]) values_.taken();
        // A word belongs to the first segment whose result has not been offered yet.
        const size_t of = ended_ + m.m_axis_result_tvalid;
        if (const Status status = region(0, of, m.m_axis_speculation_tvalid, moves[kSpeculation],
                                         &m.m_axis_speculation_tdata, m.m_axis_speculation_tlast))
            return status;
        if (const Status status = region(1, of, m.m_axis_verification_tvalid, moves[kVerification],
                                         &m.m_axis_verification_tdata, m.m_axis_verification_tlast))
            return status;
        const uint64_t result = m.m_axis_result_tdata;
        if (const Status status =
                result_rules_.check(m.m_axis_result_tvalid, moves[kResult], &result, 0, 0))
            return status;
        if (moves[kResult]) {
            if (ended_ == count_) return kCount;
            outcomes_[ended_].result = result;
            outcomes_[ended_].cycles = cycle + 1;
            ++ended_;
        }
        return kDone;
    }

  private:
    Status region(int which, size_t of, bool valid, bool moves, const void* data, unsigned last) {
        if (const Status status = region_rules_[which].check(valid, moves, data, 0, last))
            return status;
        if (!moves) return kDone;
        if (of >= count_ || outcomes_[of].packets[which]) return kRoom;
        uint64_t& bytes = outcomes_[of].bytes[which];
        if (bytes + kBusBytes > segments_[of].room) return kRoom;
        memcpy(reinterpret_cast<uint8_t*>(segments_[of].regions[which]) + bytes, data, kBusBytes);
        bytes += kBusBytes;
        outcomes_[of].packets[which] += last;
        return kDone;
    }

    const Segment* segments_;
    size_t count_, ended_ = 0;
    Outcome* outcomes_;
    Values values_;
    Rules<kBusBytes> region_rules_[2];
    Rules<8> result_rules_;
};

}  // namespace
