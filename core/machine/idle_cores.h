#pragma once
// Counts idle cores, so that helper threads do not take time from other threads.
#include <cstddef>
#include <optional>

#include "core/base/fd.h"

namespace hccl_like {

// Thread-safe.
class IdleCores {
 public:
  // Parameters are for tests.
  explicit IdleCores(const char* load = "/proc/loadavg", size_t host = 0);

  size_t host() const { return host_; }
  // Cores in the calling thread's affinity mask, capped by the control groups' quota.
  size_t usable() const;
  // Idle cores among usable(), 0 if in doubt. Assumes that every runnable thread of the host,
  // except `own` that are about to sleep, runs on them. Takes about 2 us of kernel time.
  size_t idle(size_t own = 0) const;

 private:
  std::optional<size_t> running() const;

  Fd load_;
  size_t host_;
  std::optional<size_t> quota_;
};

}  // namespace hccl_like
