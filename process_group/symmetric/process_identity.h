#pragma once
// Identity of a process on this host, for liveness checks.
#include <cstdint>

namespace hccl_like {

// Trivially copyable. The start time tells apart processes that reuse a pid.
struct ProcessIdentity {
  int64_t number = 0;
  uint64_t start = 0;

  static ProcessIdentity own();
  // False once the process has ended, even as a zombie. Both processes must share /proc.
  bool lives() const;
};

}  // namespace hccl_like
