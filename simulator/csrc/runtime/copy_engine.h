#pragma once

#include <chrono>
#include <cstddef>

namespace torch_sim {

// Gives a copy between host and device the time that a copy engine would take,
// TORCH_SIM_COPY_BANDWIDTH bytes a second: from its making to its end, asleep once the bytes are
// moved. Without the setting a copy takes what memory takes. Every stream has an engine of its own.
class CopyTime {
 public:
  explicit CopyTime(size_t bytes);
  ~CopyTime();
  CopyTime(const CopyTime&) = delete;
  CopyTime& operator=(const CopyTime&) = delete;

 private:
  const std::chrono::steady_clock::time_point end_;
};

}  // namespace torch_sim
