#pragma once
// Whether cores are idle, so that more threads gain time instead of taking it from others.
#include <cstddef>
#include <optional>

#include "core/base/fd.h"

namespace hccl_like {

// Any thread.
class IdleCores {
 public:
  // Tests name another file, and how many cores the host has.
  explicit IdleCores(const char* load = "/proc/loadavg", size_t host = 0);

  size_t host() const { return host_; }
  // Cores that the calling thread may run on: its affinity mask, no more of them than its control
  // groups give time for.
  size_t usable() const;
  // How many of the usable ones are idle at this moment, taking every running thread of the host
  // for one on them, but for `own` that are about to sleep: 0 if in doubt. Costs about 2 us, for
  // the kernel to count.
  size_t idle(size_t own = 0) const;

 private:
  std::optional<size_t> running() const;

  Fd load_;
  size_t host_;
  std::optional<size_t> quota_;
};

}  // namespace hccl_like
