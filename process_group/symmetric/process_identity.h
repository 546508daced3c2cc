#pragma once
// Which process of this host somebody is, so that it can be asked whether it lives.
#include <cstdint>

namespace hccl_like {

// Plain bytes. The time of its start tells a process from a later one with the same number.
struct ProcessIdentity {
  int64_t number = 0;
  uint64_t start = 0;

  static ProcessIdentity own();
  // False once the process has ended, even if its parent has not noticed yet. Both processes see
  // the same /proc.
  bool lives() const;
};

}  // namespace hccl_like
