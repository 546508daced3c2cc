#pragma once
// A running call: its caller's handle for completion and errors.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/call/call.h"
#include "collectives/call/plan.h"
#include "core/base/error.h"

namespace hccl_like {

class Communicator;
class LargeCall;

// Shared by the caller and the engine.
class Operation {
 public:
  Operation(std::shared_ptr<Communicator> communicator, Call call, Plan plan, uint32_t sequence);
  ~Operation();

  // Any thread. After true, all that the operation wrote is visible.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Null while running and after success. Any thread, once done().
  const Error* error() const noexcept { return done() && error_ ? &*error_ : nullptr; }
  // The sender of a recv, once done().
  int source() const noexcept { return source_; }
  uint32_t sequence() const noexcept { return sequence_; }
  uint64_t fingerprint() const noexcept { return plan_.fingerprint; }
  size_t bytes() const noexcept { return bytes_; }  // of the payload
  // Once done(). Equals finished() if the operation failed before its first step.
  std::chrono::steady_clock::time_point started() const noexcept {
    return started_ == std::chrono::steady_clock::time_point() ? finished_ : started_;
  }
  std::chrono::steady_clock::time_point finished() const noexcept { return finished_; }

  Communicator& communicator() const { return *communicator_; }
  // For errors and logs: "all_reduce #12 (float32, sum, 4194304 bytes)"; of a slice also "...,
  // slice 2 of 4 through the host".
  std::string describe() const;
  // The number shown to users.
  uint64_t number() const noexcept {
    return named(call_).number != 0 ? named(call_).number : sequence_ + 1;
  }

 private:
  friend class Communicator;
  friend class Engine;
  friend class Execution;

  std::string describe_whole() const;

  std::shared_ptr<Communicator> communicator_;
  Call call_;
  Plan plan_;
  uint32_t sequence_;
  // The first slice, if this is a later one; see Communicator::prepare_slice.
  std::shared_ptr<const Operation> begun_by_;
  bool shown_ = false;                // on the board, by the calling thread
  std::unique_ptr<LargeCall> large_;  // begun by the calling thread
  size_t bytes_;                      // payload, for describe() after the layouts are gone
  int source_ = kAnySource;
  std::optional<Error> error_;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::time_point finished_{};
  std::atomic<bool> done_{false};
};

}  // namespace hccl_like
