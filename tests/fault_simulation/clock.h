#pragma once
// Time and chance of a simulated job. One job at a time, in one thread.
#include <cstdint>

namespace hccl_like::fault_simulation {

// Nanoseconds since the job began.
using Time = int64_t;
inline constexpr Time kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

// The time that std::chrono::steady_clock reports while a job runs (replaced.cc). Negative: no job,
// the system's clock.
inline Time now = -1;
// Start of simulated time on the steady clock. Zero would mean a clock that was never read.
inline constexpr Time kBegin = 1'000'000 * kSecond;

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): the same on every machine, unlike the distributions
// of the library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. bound - 1.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  int rank(int ranks) { return static_cast<int>(below(static_cast<uint64_t>(ranks))); }
  bool chance(unsigned percent) { return below(100) < percent; }
  Time between(Time low, Time high) {
    return low + static_cast<Time>(below(static_cast<uint64_t>(high - low + 1)));
  }

 private:
  uint64_t state_;
};

}  // namespace hccl_like::fault_simulation
