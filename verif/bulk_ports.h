// When the ports of a Verilated top move, and how often they did; shared by the bulk harnesses.

#ifndef CASSANDRA_BULK_PORTS_H
#define CASSANDRA_BULK_PORTS_H

#include <cstddef>
#include <cstdint>

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

}  // namespace

#endif  // CASSANDRA_BULK_PORTS_H
