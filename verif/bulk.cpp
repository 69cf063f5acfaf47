// The Verilated decoder as a library: whole batches of segments in one call (verif/bulk.py).
//
// One clock cycle is two evaluations: inputs settle with the clock low, handshakes are read, and the
// clock rises. Sources hold what they have offered; the sink checks the rules of AXI4-Stream.

#include <cstdint>
#include <cstring>
#include <memory>

#include "Vdecoder.h"
#include "verilated.h"

// Verilator asks for the time of messages; there is none.
double sc_time_stamp() { return 0; }

namespace {

constexpr size_t kLanes = CASSANDRA_LANES;
constexpr size_t kBusBytes = kLanes;         // eight rows of kLanes bits
constexpr size_t kBeatBytes = 2 * kLanes;    // BF16 values
constexpr size_t kPorts = 5;                 // command, codebook, speculation, verification, values
enum Port { kCommand, kCodebook, kSpeculation, kVerification, kValues };

// The layouts below are repeated in bulk.py, which checks their sizes when it loads the library.
struct Segment {
  uint64_t speculation;  // addresses
  uint64_t speculation_bytes;
  uint64_t verification;
  uint64_t verification_bytes;
  uint64_t codebook;  // loaded before the segment, if codebook_size is not zero
  uint32_t codebook_size;
  uint32_t command;
  uint32_t count;      // values
  uint32_t use_verification;  // send the verification region
};

struct Outcome {
  uint32_t values;  // that came out
  uint32_t flagged;  // the packet ended with tuser
  uint32_t causes;  // `error` at that moment; cleared then in serial batches only
  uint32_t done;
  uint64_t cycles;  // from the start of the batch to the end of the packet
};

struct Pattern {
  uint32_t kind, on, off, reserved;
};

struct Options {
  Pattern patterns[kPorts];
  uint64_t seed;
  uint64_t hang_cycles;   // give up after so many cycles in which nothing moved
  uint64_t limit_cycles;  // stop there whatever happens (0: never)
  uint32_t serial;        // offer a command when the packet before it has ended, not earlier
  uint32_t go_on;         // after a flagged segment
};

struct PortCount {
  uint64_t moved, stalled, starved;  // valid and ready; valid alone; ready alone
};

struct Statistics {
  uint64_t cycles;
  PortCount ports[kPorts];
};

enum Status : int {
  kDone = 0,
  kFlagged = 1,   // a segment was flagged, and Options::go_on is zero
  kHang = 2,      // nothing moved
  kLimit = 3,     // Options::limit_cycles
  kDropped = 4,   // valid fell before ready
  kChanged = 5,   // payload changed while it waited
  kKeep = 6,      // tkeep is not contiguous, short before the last beat, or not zero with tuser
  kCount = 7,     // a good packet with the wrong number of values, or a packet too many
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

// Whether a port may move in a cycle; see verif/patterns.py.
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

// The words of a region or a codebook of one segment after the other.
struct Feed {
  size_t segment = 0;
  uint64_t offset = 0;
  bool offered = false;
};

class Harness {
 public:
  Harness() : context_(new VerilatedContext), model_(new Vdecoder(context_.get())) {}
  ~Harness() { model_->final(); }

  void reset() {
    auto& m = *model_;
    m.s_axis_command_tvalid = m.s_axis_codebook_tvalid = 0;
    m.s_axis_speculation_tvalid = m.s_axis_verification_tvalid = 0;
    m.m_axis_values_tready = m.clear_error = 0;
    m.rst = 1;
    for (int i = 0; i < 4; ++i) settle(), tick();
    m.rst = 0;
  }

  template <bool kPatterns>
  int run(const Segment* segments, size_t count, uint8_t* out, Outcome* outcomes,
          const Options& options, Statistics& statistics);

  size_t at = 0;  // segment whose packet was in hand when run() returned

 private:
  void settle() {
    model_->clk = 0;
    model_->eval();
  }
  void tick() {
    model_->clk = 1;
    model_->eval();
  }

  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Vdecoder> model_;
};

void tally(PortCount& port, bool valid, bool ready) {
  port.moved += valid & ready;
  port.stalled += valid & !ready;
  port.starved += !valid & ready;
}

template <typename Data>
void put(Data& port, uint64_t address, uint64_t offset) {
  static_assert(sizeof(Data) == kBusBytes);
  memcpy(&port, reinterpret_cast<const uint8_t*>(address) + offset, kBusBytes);
}

template <bool kPatterns>
int Harness::run(const Segment* segments, size_t count, uint8_t* out, Outcome* outcomes,
                 const Options& options, Statistics& statistics) {
  auto& m = *model_;
  Random random{options.seed | 1};
  Activity activity[kPorts];
  for (size_t i = 0; i < kPorts; ++i) activity[i].pattern = options.patterns[i];
  Feed control, spec, ver;
  bool book_done = false;
  uint8_t waiting[kBeatBytes];
  uint64_t waiting_keep = 0;
  uint32_t waiting_flags = 0;
  bool was_waiting = false, clear = false;
  uint64_t quiet = 0, values = 0;
  at = 0;
  // Regions that have no words are passed over.
  auto skip = [&](Feed& feed, bool verification) {
    while (feed.segment < count) {
      const Segment& s = segments[feed.segment];
      const uint64_t size = verification ? (s.use_verification ? s.verification_bytes : 0)
                                         : s.speculation_bytes;
      if (feed.offset < size) return;
      feed.offset = 0, ++feed.segment;
    }
  };
  auto allowed = [&](size_t port) {
    if constexpr (kPatterns) return activity[port].next(random);
    return true;
  };
  skip(spec, false), skip(ver, true);
  for (uint64_t cycle = 0; at < count; ++cycle) {
    if (quiet > options.hang_cycles) return kHang;
    if (options.limit_cycles && cycle >= options.limit_cycles) return kLimit;
    // Inputs.
    const Segment* next = control.segment < count ? segments + control.segment : nullptr;
    const bool turn = next && (!options.serial || at == control.segment);
    const bool book = turn && !book_done && next->codebook_size;
    const bool may_command = allowed(kCommand), may_book = allowed(kCodebook);
    if (turn) {
      if (book) {
        control.offered |= may_book;
        const uint8_t* entries = reinterpret_cast<const uint8_t*>(next->codebook);
        m.s_axis_codebook_tdata = entries[control.offset];
        m.s_axis_codebook_tlast = control.offset + 1 == next->codebook_size;
      } else {
        control.offered |= may_command;
        m.s_axis_command_tdata = next->command;
      }
    }
    m.s_axis_codebook_tvalid = book && control.offered;
    m.s_axis_command_tvalid = turn && !book && control.offered;
    spec.offered = spec.segment < count && (spec.offered | allowed(kSpeculation));
    if (spec.offered) {
      const Segment& s = segments[spec.segment];
      put(m.s_axis_speculation_tdata, s.speculation, spec.offset);
      m.s_axis_speculation_tlast = spec.offset + kBusBytes >= s.speculation_bytes;
    }
    m.s_axis_speculation_tvalid = spec.offered;
    ver.offered = ver.segment < count && (ver.offered | allowed(kVerification));
    if (ver.offered) {
      const Segment& s = segments[ver.segment];
      put(m.s_axis_verification_tdata, s.verification, ver.offset);
      m.s_axis_verification_tlast = ver.offset + kBusBytes >= s.verification_bytes;
    }
    m.s_axis_verification_tvalid = ver.offered;
    m.m_axis_values_tready = allowed(kValues);
    m.clear_error = clear;
    clear = false;
    settle();
    // Handshakes.
    const bool command_moves = m.s_axis_command_tvalid && m.s_axis_command_tready;
    const bool book_moves = m.s_axis_codebook_tvalid && m.s_axis_codebook_tready;
    const bool spec_moves = m.s_axis_speculation_tvalid && m.s_axis_speculation_tready;
    const bool ver_moves = m.s_axis_verification_tvalid && m.s_axis_verification_tready;
    const bool valid = m.m_axis_values_tvalid;
    const bool values_move = valid && m.m_axis_values_tready;
    ++statistics.cycles;
    tally(statistics.ports[kCommand], m.s_axis_command_tvalid, m.s_axis_command_tready);
    tally(statistics.ports[kCodebook], m.s_axis_codebook_tvalid, m.s_axis_codebook_tready);
    tally(statistics.ports[kSpeculation], m.s_axis_speculation_tvalid,
          m.s_axis_speculation_tready);
    tally(statistics.ports[kVerification], m.s_axis_verification_tvalid,
          m.s_axis_verification_tready);
    tally(statistics.ports[kValues], valid, m.m_axis_values_tready);
    const bool moved = command_moves | book_moves | spec_moves | ver_moves | values_move;
    quiet = moved ? 0 : quiet + 1;
    if (was_waiting) {
      if (!valid) return kDropped;
      const uint32_t flags = m.m_axis_values_tlast | m.m_axis_values_tuser << 1;
      if (flags != waiting_flags || waiting_keep != m.m_axis_values_tkeep ||
          memcmp(waiting, &m.m_axis_values_tdata, kBeatBytes))
        return kChanged;
    }
    was_waiting = valid && !values_move;
    if (was_waiting) {
      memcpy(waiting, &m.m_axis_values_tdata, kBeatBytes);
      waiting_keep = m.m_axis_values_tkeep;
      waiting_flags = m.m_axis_values_tlast | m.m_axis_values_tuser << 1;
    }
    if (book_moves && ++control.offset == next->codebook_size) book_done = true, control.offset = 0;
    if (book_moves) control.offered = false;
    if (command_moves) ++control.segment, control.offered = book_done = false;
    if (spec_moves) spec.offered = false, spec.offset += kBusBytes, skip(spec, false);
    if (ver_moves) ver.offered = false, ver.offset += kBusBytes, skip(ver, true);
    if (values_move) {
      const Segment& s = segments[at];
      const uint64_t keep = m.m_axis_values_tkeep;
      const bool last = m.m_axis_values_tlast, flagged = m.m_axis_values_tuser;
      const size_t bytes = __builtin_popcountll(keep);
      const bool contiguous = (keep & (keep + 1)) == 0 && bytes % 2 == 0;
      if (!contiguous || (flagged && keep) || (!last && bytes != kBeatBytes)) return kKeep;
      if (flagged && !last) return kKeep;
      if (values + bytes / 2 > s.count) return kCount;
      memcpy(out + 2 * values, &m.m_axis_values_tdata, bytes);
      values += bytes / 2;
      if (last) {
        if (!flagged && values != s.count) return kCount;
        outcomes[at] = {static_cast<uint32_t>(values), flagged, m.error, 1, cycle + 1};
        out += 2 * static_cast<size_t>(s.count);
        values = 0;
        if (flagged && !options.go_on) return kFlagged;
        clear = flagged && options.serial;  // else it could be the next segment's cause
        ++at;
      }
    }
    tick();
  }
  return kDone;
}

}  // namespace

extern "C" {

void* cassandra_create() { return new Harness; }

void cassandra_destroy(void* handle) { delete static_cast<Harness*>(handle); }

// Sizes of the structures, so that the caller can check its own.
void cassandra_sizes(uint32_t* sizes) {
  sizes[0] = kLanes, sizes[1] = sizeof(Segment), sizes[2] = sizeof(Outcome);
  sizes[3] = sizeof(Options), sizes[4] = sizeof(Statistics);
}

// Decodes a batch. `out` has room for the values of all segments; a segment's values start where
// those of the segments before it end. Every batch starts with a reset: no codebook is loaded.
int cassandra_run(void* handle, const Segment* segments, uint64_t count, uint8_t* out,
                  Outcome* outcomes, const Options* options, Statistics* statistics,
                  uint64_t* at) {
  auto& harness = *static_cast<Harness*>(handle);
  harness.reset();
  bool patterns = false;
  for (const Pattern& pattern : options->patterns) patterns |= pattern.kind != 0;
  const int status =
      patterns ? harness.run<true>(segments, count, out, outcomes, *options, *statistics)
               : harness.run<false>(segments, count, out, outcomes, *options, *statistics);
  *at = harness.at;
  return status;
}
}
