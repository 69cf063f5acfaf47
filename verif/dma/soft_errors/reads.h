// Decoders behind verif/dma/soft_errors/flips.cpp: a memory that is read, and who takes the values.

#include "Vdma.h"

namespace {

using Model = Vdma;

class Bus : Side {
  public:
    Bus(const Work& work, Map& map, Outcome& outcome)
        : Side(work, map, outcome), beat_(outcome.unheld),
          values_(reinterpret_cast<uint16_t*>(work.values)) {}

    static void idle(Model& m) { m.m_axi_arready = m.m_axi_rvalid = m.m_axis_values_tready = 0; }

    void drive(Model& m) {
        m.m_axi_arready = pace_.half() && words_.size() < kMost;
        m.m_axis_values_tready = pace_.often();
        offered_ |= !words_.empty() && cycle_ >= words_.front().due && pace_.often();
        m.m_axi_rvalid = offered_;
        ++cycle_;
        if (!offered_) return;
        const Word& word = words_.front();
        const uint8_t* data = map_.at(word.address, kSize);
        memset(&m.m_axi_rdata, 0, kSize);
        if (data) memcpy(&m.m_axi_rdata, data, kSize);
        m.m_axi_rid = word.id, m.m_axi_rlast = word.last, m.m_axi_rresp = 0;
    }

    bool step(const Model& m) {
        const bool asked = m.m_axi_arvalid && m.m_axi_arready;
        const bool read = m.m_axi_rvalid && m.m_axi_rready;
        const bool left = m.m_axis_values_tvalid && m.m_axis_values_tready;
        const uint64_t address = m.m_axi_araddr;
        address_.check(m.m_axi_arvalid, m.m_axi_arready, &address,
                       m.m_axi_arlen | m.m_axi_arid << 8);
        beat_.check(
            m.m_axis_values_tvalid, m.m_axis_values_tready, &m.m_axis_values_tdata,
            m.m_axis_values_tkeep << 2 | m.m_axis_values_tlast << 1 | m.m_axis_values_tuser);
        if (asked) ask(m);
        if (read) words_.pop_front(), offered_ = false;
        if (left) take(m);
        return asked || read || left;
    }

  private:
    static constexpr size_t kSize = sizeof(Model::m_axi_rdata), kMost = 512, kLatency = 8;

    struct Word {
        uint64_t address, due;
        uint8_t id, last;
    };

    void ask(const Model& m) {
        const size_t words = m.m_axi_arlen + 1u;
        map_.ask(m.m_axi_araddr, words, kSize);
        for (size_t i = 0; i < words; ++i)
            words_.push_back(
                {m.m_axi_araddr + i * kSize, cycle_ + kLatency, m.m_axi_arid, i + 1 == words});
    }

    void take(const Model& m) {
        const uint32_t ended = outcome_.packets;
        const size_t values = __builtin_popcount(m.m_axis_values_tkeep) / 2;
        const bool room = ended < count_ && taken_ + values <= packets_[ended];
        if (room) memcpy(values_ + taken_, &m.m_axis_values_tdata, 2 * values);
        outcome_.wrong += !room;
        taken_ += values;
        if (!m.m_axis_values_tlast) return;
        if (room) outcome_.wrong += taken_ != packets_[ended], values_ += packets_[ended];
        outcome_.flagged |= static_cast<uint32_t>(m.m_axis_values_tuser) << ended;
        ++outcome_.packets;
        taken_ = 0;
    }

    Held<sizeof(Model::m_axis_values_tdata)> beat_;
    std::deque<Word> words_;
    uint16_t* values_;
    size_t taken_ = 0;  // values of the packet in hand
};

}  // namespace
