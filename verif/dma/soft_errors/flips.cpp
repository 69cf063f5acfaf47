// A Verilated peripheral as a library: its registers are written and read as software would, a
// memory is behind its bus, and one bit of its state is changed on the way
// (verif/dma/soft_errors/flips.py). The bus is what CASSANDRA_TOP includes:
// verif/dma/soft_errors/reads.h or verif/dma/soft_errors/writes.h.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "verilated.h"
#include "verilated_ports.h"
#include "verilated_syms.h"

namespace {

constexpr size_t kLanes = CASSANDRA_LANES;

// The layouts below are repeated in verif/dma/soft_errors/flips.py, which checks their sizes.
struct Step {
    uint32_t kind;  // of Kind
    uint32_t address, data;
    uint32_t opens;  // regions that may be accessed from here on
};
enum Kind : uint32_t { kWrite, kRead, kAwait };  // await: until the interrupt and silence

struct Region {
    uint64_t base, bytes, data;  // data: an address of this process
};

struct Work {
    uint64_t steps, regions, values, reads;  // addresses; reads: one word for each read
    uint64_t packets;                        // address: values in each packet
    uint64_t step_count, region_count, packet_count;
    uint64_t seed;         // of the pace of both sides
    uint64_t hang_cycles;  // in which nothing moved
};

struct Flip {
    uint64_t cycle;  // of the run, before which it happens
    uint32_t place, bit;
};

struct Outcome {
    uint64_t cycles;
    uint32_t outside;   // bursts that touch a word which no descriptor names
    uint32_t repeated;  // bursts that touch a word for the second time
    uint32_t broken;    // rules of AXI that the top broke about addresses and bursts
    uint32_t unheld;    // data that changed or went away before they were taken
    uint32_t steps;     // that were done
    uint32_t packets;   // that ended
    uint32_t flagged;   // bit i: packet i was flagged
    uint32_t wrong;     // packets with another number of values, or values beyond the last packet
    uint32_t silent;    // the interrupt did not come
};

// The words of the regions that were accessed.
class Map {
  public:
    Map(const Work& work, Outcome& outcome)
        : regions_(reinterpret_cast<const Region*>(work.regions)), asked_(work.region_count),
          outcome_(outcome) {}

    void open(uint32_t regions) { open_ = regions; }

    // A burst is asked for.
    void ask(uint64_t address, size_t words, size_t size) {
        bool outside = false, repeated = false;
        for (size_t i = 0; i < words; ++i) {
            const int region = find(address + i * size, size);
            if (region < 0) {
                outside = true;
                continue;
            }
            auto& asked = asked_[region];
            const size_t word = (address + i * size - regions_[region].base) / size;
            asked.resize(regions_[region].bytes / size);
            repeated |= asked[word];
            asked[word] = true;
        }
        outcome_.outside += outside;
        outcome_.repeated += repeated && !outside;
        outcome_.broken += address / 4096 != (address + words * size - 1) / 4096;
    }

    // The bytes at an address; null if nothing is there.
    uint8_t* at(uint64_t address, size_t size) const {
        const int region = find(address, size);
        if (region < 0) return nullptr;
        return reinterpret_cast<uint8_t*>(regions_[region].data + address - regions_[region].base);
    }

  private:
    int find(uint64_t address, size_t size) const {
        for (size_t i = 0; i < open_; ++i) {
            const uint64_t offset = address - regions_[i].base;
            if (offset < regions_[i].bytes && size <= regions_[i].bytes - offset) return i;
        }
        return -1;
    }

    const Region* regions_;
    std::vector<std::vector<bool>> asked_;
    Outcome& outcome_;
    uint32_t open_ = 0;
};

// Some cycles move, some do not, by a seed.
class Pace {
  public:
    explicit Pace(uint64_t seed) : random_{seed | 1} {}
    bool often() { return random_.below(4) != 0; }
    bool half() { return random_.below(2) != 0; }

  private:
    Random random_;
};

// A channel that the top drives: held to the rules of valid and ready.
template <size_t kBytes> class Held {
  public:
    explicit Held(uint32_t& broken) : broken_(broken) {}
    void check(bool valid, bool ready, const void* data, uint64_t flags) {
        if (rules_.check(valid, ready, data, flags, 0) == kDone) return;
        ++broken_;
        rules_ = {};
    }

  private:
    Rules<kBytes> rules_;
    uint32_t& broken_;
};

// The parts that both buses have: a memory that checks the rules of addresses, and packets of
// values.
struct Side {
    Side(const Work& work, Map& map, Outcome& outcome)
        : map_(map), outcome_(outcome), pace_(work.seed), address_(outcome.broken),
          packets_(reinterpret_cast<const uint32_t*>(work.packets)), count_(work.packet_count) {}

    Map& map_;
    Outcome& outcome_;
    Pace pace_;
    Held<8> address_;
    const uint32_t* packets_;  // values of each
    const size_t count_;
    uint64_t cycle_ = 0;
    bool offered_ = false;
};

}  // namespace

#include CASSANDRA_TOP

// Verilator needs a time for its messages.
double sc_time_stamp() { return 0; }

namespace {

// Software on the register port, one access after another.
class Host {
  public:
    Host(const Work& work, Map& map, Outcome& outcome)
        : steps_(reinterpret_cast<const Step*>(work.steps)), count_(work.step_count),
          reads_(reinterpret_cast<uint32_t*>(work.reads)), map_(map), outcome_(outcome) {}

    bool done() const { return outcome_.steps == count_; }
    bool awaiting() const { return !done() && step().kind == kAwait; }
    void next() { ++outcome_.steps, begun_ = false; }

    void drive(Model& m) {
        m.s_axil_bready = m.s_axil_rready = 1;
        if (!begun_ && !done() && !awaiting()) {
            begun_ = true;
            address_ = data_ = step().kind == kWrite;
            fetch_ = !address_;
            if (step().opens) map_.open(step().opens);
        }
        m.s_axil_awvalid = address_, m.s_axil_wvalid = data_, m.s_axil_arvalid = fetch_;
        if (!begun_) return;
        m.s_axil_awaddr = m.s_axil_araddr = step().address;
        m.s_axil_wdata = step().data, m.s_axil_wstrb = 0xF;
    }

    bool step(const Model& m) {  // whether anything moved
        const bool address = address_ && m.s_axil_awready, data = data_ && m.s_axil_wready;
        const bool fetch = fetch_ && m.s_axil_arready;
        address_ &= !address, data_ &= !data, fetch_ &= !fetch;
        const bool answer = begun_ && (step().kind == kRead ? m.s_axil_rvalid : m.s_axil_bvalid);
        if (answer && !address_ && !data_ && !fetch_) {
            if (step().kind == kRead) *reads_++ = m.s_axil_rdata;
            next();
        }
        return address || data || fetch || answer;
    }

  private:
    const Step& step() const { return steps_[outcome_.steps]; }

    const Step* steps_;
    const size_t count_;
    uint32_t* reads_;
    Map& map_;
    Outcome& outcome_;
    bool begun_ = false;
    bool address_ = false, data_ = false, fetch_ = false;  // offered
};

constexpr uint64_t kSilence = 40;  // cycles after the interrupt; more than the memory takes

class Harness : Clocked<Model> {
  public:
    Harness() {
        for (const auto& [name, scope] : *context_->scopeNameMap()) {
            if (!scope->varsp() || !strcmp(name, "TOP.TOP")) continue;  // ports
            for (const auto& [variable, it] : *scope->varsp())
                places_.push_back({std::string(name) + ' ' + variable, &it});
        }
    }

    size_t places() const { return places_.size(); }
    const char* place(size_t i, uint32_t* bits) const {
        *bits = places_[i].var->entBits() * elements(i);
        return places_[i].name.c_str();
    }

    void run(const Work& work, const Flip& change, Outcome& outcome) {
        Model& m = *model_;
        Map map(work, outcome);
        Host host(work, map, outcome);
        Bus bus(work, map, outcome);
        reset();
        for (uint64_t quiet = 0; !host.done(); ++outcome.cycles) {
            if (outcome.cycles == change.cycle) flip(change);
            host.drive(m);
            bus.drive(m);
            settle();
            const bool moved = host.step(m) | bus.step(m);
            quiet = moved ? 0 : quiet + 1;
            if (quiet > work.hang_cycles && !host.awaiting()) return;
            if (host.awaiting() && quiet > (m.irq ? kSilence : work.hang_cycles))
                outcome.silent = !m.irq, host.next(), quiet = 0;
            tick();
        }
    }

  private:
    struct Place {
        std::string name;
        const VerilatedVar* var;
    };

    uint32_t elements(size_t i) const {
        return places_[i].var->udims() ? places_[i].var->elements(1) : 1;
    }

    void flip(const Flip& change) {
        const VerilatedVar& var = *places_[change.place].var;
        const uint32_t element = change.bit / var.entBits(), bit = change.bit % var.entBits();
        auto* bytes = static_cast<uint8_t*>(var.datap()) + element * var.entSize();
        bytes[bit / 8] ^= 1 << bit % 8;
    }

    void reset() {
        Bus::idle(*model_);
        model_->s_axil_awvalid = model_->s_axil_wvalid = model_->s_axil_arvalid = 0;
        Clocked::reset(2);
    }
    std::vector<Place> places_;
};

}  // namespace

extern "C" {

void* cassandra_create() { return new Harness; }

void cassandra_destroy(void* handle) { delete static_cast<Harness*>(handle); }

// Sizes of the structures, so that the caller can check its own.
void cassandra_sizes(uint32_t* sizes) {
    sizes[0] = sizeof(Step), sizes[1] = sizeof(Region), sizes[2] = sizeof(Work);
    sizes[3] = sizeof(Flip), sizes[4] = sizeof(Outcome);
}

uint32_t cassandra_places(void* handle) { return static_cast<Harness*>(handle)->places(); }

// The name of a register, and how many bits it has.
const char* cassandra_place(void* handle, uint32_t place, uint32_t* bits) {
    return static_cast<Harness*>(handle)->place(place, bits);
}

// Resets the top and does the work; one bit changes on the way.
void cassandra_run(void* handle, const Work* work, const Flip* flip, Outcome* outcome) {
    static_cast<Harness*>(handle)->run(*work, *flip, *outcome);
}
}
