#pragma once
// Connections that were turned away at the door: counted, and told in the log now and then.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/deadline.h"

namespace hccl_like {

enum class Refusal : uint8_t {
  kNotOurs,  // says something else than a hello of this version: scanners, health checks, other
             // programs
  kOtherProcess,  // wants a process that is not this one: an earlier one of this address, mostly
  kUnproved,      // does not have the job's key: another job, another secret, a forger
  kReplayed,      // says what somebody else has said before
  kTooSlow,       // did not say enough in time
  kTooMany,       // made room for a later one
  kOtherUser,     // of this host, at the UNIX socket
  kLeft,          // went without having said enough
};
inline constexpr size_t kRefusals = 8;

// "it does not have the job's key", ...
std::string_view describe(Refusal refusal) noexcept;

// A word for each, for programs: "not_ours", ...
std::string_view name(Refusal refusal) noexcept;

// Those of all listeners that this process has had, for its status. Any thread.
std::array<uint64_t, kRefusals> refused_by_this_process() noexcept;

// By one thread at a time.
class Refusals {
 public:
  static constexpr std::chrono::milliseconds kTellEvery{10'000};

  // Logs the first one at once, and later ones together, at most one line in kTellEvery. A wrong
  // proof is a warning, the rest is of interest at INFO.
  void count(Refusal refusal, const std::string& from);
  const std::array<uint64_t, kRefusals>& counts() const { return counts_; }
  uint64_t total() const;

 private:
  std::array<uint64_t, kRefusals> counts_{};
  uint64_t untold_ = 0;
  bool warn_ = false;
  Deadline next_line_ = Deadline::after(std::chrono::milliseconds(0));
};

}  // namespace hccl_like
