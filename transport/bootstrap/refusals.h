#pragma once
// Counts rejected connections and logs them periodically.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/deadline.h"

namespace hccl_like {

enum class Refusal : uint8_t {
  kNotOurs,       // no hello of this version: scanners, health checks, other programs
  kOtherProcess,  // for another process, mostly an earlier one at this address
  kUnproved,      // lacks the job's key: another job, another secret, a forgery
  kReplayed,      // a replayed hello
  kTooSlow,       // timeout
  kTooMany,       // dropped for a later connection
  kOtherUser,     // another user of this host, at the UNIX socket
  kLeft,          // left before the end of the handshake
};
inline constexpr size_t kRefusals = 8;

// A sentence, e.g. "it does not have the job's key".
std::string_view describe(Refusal refusal) noexcept;

// An identifier for programs, e.g. "not_ours".
std::string_view name(Refusal refusal) noexcept;

// Counts of all listeners of this process. Any thread.
std::array<uint64_t, kRefusals> refused_by_this_process() noexcept;

// Used by one thread at a time.
class Refusals {
 public:
  static constexpr std::chrono::milliseconds kTellEvery{10'000};

  // Logs the first rejection at once and later ones together, at most one line per kTellEvery.
  // kUnproved and kReplayed log a warning, all others INFO.
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
