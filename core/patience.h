#pragma once
// How long a thread that waits for another process stays awake: a few polls, then yields, each of which gives the core
// to whoever has the data. Measured best with fewer and with more ranks than cores.
#include <thread>

#include "core/config.h"

namespace hccl_like {

class Patience {
 public:
  explicit Patience(const Config& config)
      : spins_(config.spins), most_(config.spins + config.yields) {}

  // Waits a moment; false if it is time to sleep.
  bool wait() {
    if (++waits_ <= spins_) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      return true;
    }
    if (waits_ > most_) return false;
    std::this_thread::yield();
    return true;
  }
  // Whether the polls are over: what comes next is a yield or a sleep.
  bool spun() const { return waits_ >= spins_; }
  void reset() { waits_ = 0; }

 private:
  const uint32_t spins_;
  const uint32_t most_;
  uint32_t waits_ = 0;
};

}  // namespace hccl_like
