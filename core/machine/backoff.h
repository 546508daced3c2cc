#pragma once
// Backoff for a thread that waits for another process: polls, then yields, then sleep.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/machine/pause.h"
#include "core/settings/config.h"

namespace hccl_like {

class Backoff {
 public:
  // `own_core`: no other rank wants the core, so waiting on it costs nobody anything. A sleep in
  // the middle of a call costs more than the wait: the core of a virtual machine that idles may be
  // taken away for milliseconds, which makes the next rank sleep in turn.
  explicit Backoff(const Config& config, bool own_core = false)
      : spins_(config.spins),
        most_(config.spins + std::min(config.yields, kMostYields) * (own_core ? kOwnCore : 1)) {}

  // Waits briefly. Returns false if the caller should sleep.
  bool wait() {
    if (++waits_ <= spins_) {
      cpu_pause();
      return true;
    }
    if (waits_ > most_ || takes_long()) return false;
    std::this_thread::yield();
    return true;
  }
  // Time since the first yield; zero before it. Short waits are not measured.
  std::chrono::nanoseconds waited() const {
    if (waits_ <= spins_ || since_ == Clock::time_point()) return {};
    return Clock::now() - since_;
  }
  // True if polling is over and the next wait is a yield or a sleep.
  bool spun() const { return waits_ >= spins_; }
  // For polls that are system calls: a yield costs no more and gives the core to the sender.
  void skip_spins() { waits_ = std::max(waits_, spins_); }
  void reset() { waits_ = 0; }

 private:
  using Clock = std::chrono::steady_clock;
  // Limits total yield time: on a busy core one yield may last milliseconds. A caller without the
  // engine must hear of failures.
  static constexpr std::chrono::milliseconds kLongest{10};
  static constexpr uint32_t kBetweenLooks = 8;
  static constexpr uint32_t kOwnCore = 100;
  static constexpr uint32_t kMostYields = 1 << 24;

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
