#pragma once
// c10d's handle of one call.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "process_group/calls/description.h"
#include "process_group/calls/group_view.h"
#include "process_group/issue/completer.h"
#include "process_group/issue/pending.h"

namespace hccl_like {

// In stream order (DeviceAccess), wait() makes the caller's current stream wait and returns at
// once, and the Future is complete from the start. Only barrier(), a receive from any source (both
// with their Futures) and a wait with a timeout block the host. Without stream order wait() blocks
// the host, and the Future is completed after the call. A Future always orders the streams of its
// callbacks.
// After a failure every wait() raises. In stream order wait() usually returns before the failure is
// known; then the next call of the group raises.
class Work final : public c10d::Work {
 public:
  // `group`: number_of_new_group().
  Work(const Description& description, const std::shared_ptr<Session>& session, int rank,
       uint64_t group);

  // --- by the issuing thread, before the user sees this object ---
  void set_pending(std::shared_ptr<Pending> pending, uint64_t sequence);
  // The call is over on `stream` at `end`; `end` is null if `stream` is the caller's own.
  void set_stream(c10::Stream stream, std::shared_ptr<c10::Event> end);
  // `device` has events: users of the Future are ordered behind the call on it.
  void set_device(c10::Device device) { device_ = device; }
  void add_outputs(at::TensorList outputs);
  // A profiler is active and also records waits.
  void set_watched(std::shared_ptr<const GroupView> group, const CallNumber& number);
  // wait() blocks the host also in stream order.
  void set_blocking() { blocking_ = true; }
  // Replaces the result, if it is computed from the call's outputs.
  void set_outputs(std::vector<at::Tensor> outputs) { outputs_ = std::move(outputs); }
  // For a profiler: records the end of a host call even if no thread waits for it.
  void record_end_in_time(Completer& completer);
  // Ends the profiler record; in stream order, when the call is queued.
  void end_record();
  // ---
  const std::shared_ptr<Pending>& pending() const { return pending_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  bool in_stream() const { return stream_.has_value(); }
  std::string where() const { return place_of(title_); }
  bool waits_on_host() const { return !in_stream() || blocking_; }
  void require_issued() const;
  std::shared_ptr<Session> session_that_completes() const;
  void wait_unseen(std::chrono::milliseconds timeout);
  void wait_on_host(std::chrono::milliseconds timeout);
  void conclude();
  void throw_if_failed() const;
  // The failure as an exception. `told`: the exception goes to the program.
  std::exception_ptr failure(bool told) const;
  void complete_future();

  const char* const title_;
  const std::weak_ptr<Session> session_;
  const uint64_t group_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Pending> pending_;  // null while a coalescing block is open
  uint64_t sequence_ = 0;
  bool blocking_ = false;
  std::optional<c10::Stream> stream_;
  std::shared_ptr<c10::Event> end_;
  std::optional<c10::Device> device_;
  std::shared_ptr<const GroupView> watched_by_;
  CallNumber number_;

  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_completed_ = false;  // on the host
  std::once_flag recorded_;
};

}  // namespace hccl_like
