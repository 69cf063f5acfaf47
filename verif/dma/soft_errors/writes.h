// An encoder in front of verif/dma/soft_errors/flips.cpp: a memory that is written, and who sends
// the values.

#include "Vencoder_dma.h"

namespace {

using Model = Vencoder_dma;

class Bus : Side {
  public:
    Bus(const Work& work, Map& map, Outcome& outcome)
        : Side(work, map, outcome), word_(outcome.unheld),
          values_(reinterpret_cast<const uint16_t*>(work.values)) {}

    static void idle(Model& m) {
        m.m_axi_awready = m.m_axi_wready = m.m_axi_bvalid = m.s_axis_values_tvalid = 0;
    }

    void drive(Model& m) {
        m.m_axi_awready = pace_.half() && bursts_.size() < kMost;
        m.m_axi_wready = pace_.often() && !bursts_.empty();
        answering_ |= !answers_.empty() && cycle_ >= answers_.front().due && pace_.often();
        m.m_axi_bvalid = answering_;
        if (answering_) m.m_axi_bid = answers_.front().id, m.m_axi_bresp = 0;
        ++cycle_;
        offered_ |= outcome_.packets < count_ && pace_.often();
        m.s_axis_values_tvalid = offered_;
        if (!offered_) return;
        const size_t left = packets_[outcome_.packets] - sent_;
        beat_ = left < kBeat ? left : kBeat;
        memset(&m.s_axis_values_tdata, 0, 2 * kBeat);
        memcpy(&m.s_axis_values_tdata, values_ + sent_, 2 * beat_);
        m.s_axis_values_tkeep = (1ull << 2 * beat_) - 1;
        m.s_axis_values_tlast = beat_ == left;
    }

    bool step(const Model& m) {
        const bool asked = m.m_axi_awvalid && m.m_axi_awready;
        const bool written = m.m_axi_wvalid && m.m_axi_wready;
        const bool answered = m.m_axi_bvalid && m.m_axi_bready;
        const bool came = m.s_axis_values_tvalid && m.s_axis_values_tready;
        const uint64_t address = m.m_axi_awaddr;
        address_.check(m.m_axi_awvalid, m.m_axi_awready, &address,
                       m.m_axi_awlen | m.m_axi_awid << 8);
        word_.check(m.m_axi_wvalid, m.m_axi_wready, &m.m_axi_wdata, m.m_axi_wlast);
        if (written) write(m);
        if (asked) {
            map_.ask(m.m_axi_awaddr, m.m_axi_awlen + 1u, kSize);
            bursts_.push_back({m.m_axi_awaddr, m.m_axi_awlen + 1u, m.m_axi_awid});
        }
        if (answered) answers_.pop_front(), answering_ = false;
        if (came) {
            sent_ += beat_, offered_ = false;
            if (m.s_axis_values_tlast) values_ += sent_, sent_ = 0, ++outcome_.packets;
        }
        return asked || written || answered || came;
    }

  private:
    static constexpr size_t kSize = sizeof(Model::m_axi_wdata), kMost = 8, kLatency = 8;
    static constexpr size_t kBeat = kLanes;

    struct Burst {
        uint64_t address;
        size_t words;
        uint8_t id;
    };
    struct Answer {
        uint64_t due;
        uint8_t id;
    };

    void write(const Model& m) {
        Burst& burst = bursts_.front();
        uint8_t* data = map_.at(burst.address, kSize);
        if (data) memcpy(data, &m.m_axi_wdata, kSize);
        burst.address += kSize, --burst.words;
        outcome_.broken += m.m_axi_wlast != (burst.words == 0);
        if (burst.words) return;
        answers_.push_back({cycle_ + kLatency, burst.id});
        bursts_.pop_front();
    }

    Held<sizeof(Model::m_axi_wdata)> word_;
    std::deque<Burst> bursts_;
    std::deque<Answer> answers_;
    bool answering_ = false;
    const uint16_t* values_;
    size_t sent_ = 0, beat_ = 0;  // values of the packet; of the beat
};

}  // namespace
