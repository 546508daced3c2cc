#pragma once
// How long a thread that waits for another process stays awake: a few polls, then yields, each of
// which gives the core to whoever has the data. Measured best with fewer and with more ranks than
// cores.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/machine/pause.h"
#include "core/settings/config.h"

namespace hccl_like {

class Backoff {
 public:
  explicit Backoff(const Config& config)
      : spins_(config.spins), most_(config.spins + config.yields) {}

  // Waits a moment; false if it is time to sleep.
  bool wait() {
    if (++waits_ <= spins_) {
      cpu_pause();
      return true;
    }
    if (waits_ > most_ || takes_long()) return false;
    std::this_thread::yield();
    return true;
  }
  // Whether the polls are over: what comes next is a yield or a sleep.
  bool spun() const { return waits_ >= spins_; }
  // Where a poll is a system call a yield costs no more, and the core is wanted by whoever has the
  // data.
  void skip_spins() { waits_ = std::max(waits_, spins_); }
  void reset() { waits_ = 0; }

 private:
  using Clock = std::chrono::steady_clock;
  // Where others want the core a yield may last for milliseconds, and all of them for a second, in
  // which a caller without the engine would hear of no failure.
  static constexpr std::chrono::milliseconds kLongest{10};
  static constexpr uint32_t kBetweenLooks = 8;

  bool takes_long() {
    const uint32_t yields = waits_ - spins_ - 1;
    if (yields % kBetweenLooks != 0) return false;
    const auto now = Clock::now();
    if (yields == 0) since_ = now;
    return now - since_ > kLongest;
  }

  const uint32_t spins_;
  const uint32_t most_;
  uint32_t waits_ = 0;
  Clock::time_point since_{};
};

}  // namespace hccl_like
