#pragma once
// A call under way: the handle by which its caller learns how it went.
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

  // Any thread. Everything that the operation wrote is visible once this is true.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Null while running and after success. Any thread, once done().
  const Error* error() const noexcept { return done() && error_ ? &*error_ : nullptr; }
  // The rank that a recv heard from, once done().
  int source() const noexcept { return source_; }
  uint32_t sequence() const noexcept { return sequence_; }
  // Once done(). An operation that failed before its first step began when it ended.
  std::chrono::steady_clock::time_point started() const noexcept {
    return started_ == std::chrono::steady_clock::time_point() ? finished_ : started_;
  }
  std::chrono::steady_clock::time_point finished() const noexcept { return finished_; }

  Communicator& communicator() const { return *communicator_; }
  // "all_reduce #12 (float32, sum, 4194304 bytes)", for errors and logs; of a lap "..., lap 2 of 4
  // through the host".
  std::string describe() const;
  // By which people know it.
  uint64_t number() const noexcept { return call_.number != 0 ? call_.number : sequence_ + 1; }

 private:
  friend class Communicator;
  friend class Engine;
  friend class Execution;

  std::string describe_whole() const;

  std::shared_ptr<Communicator> communicator_;
  Call call_;
  Plan plan_;
  uint32_t sequence_;
  std::shared_ptr<const Operation>
      begun_by_;                      // what this is a later lap of; see Communicator::prepare_lap
  bool shown_ = false;                // on the board, by the thread that called
  std::unique_ptr<LargeCall> large_;  // begun by it
  size_t bytes_;                      // the payload, for describe(): the layouts are gone by then
  int source_ = kAnySource;
  std::optional<Error> error_;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::time_point finished_{};
  std::atomic<bool> done_{false};
};

}  // namespace hccl_like
