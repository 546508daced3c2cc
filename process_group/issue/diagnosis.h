#pragma once
// Everything by which others watch the calls of one group.
#include <memory>
#include <mutex>
#include <unordered_map>

#include <c10/util/FunctionRef.h>

#include "process_group/calls/group_view.h"
#include "process_group/diagnosis/failure_report.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/profiling.h"
#include "process_group/issue/completion_hooks.h"
#include "process_group/issue/timing.h"

namespace hccl_like {

// Part of a Backend; the Issuer tells it of each call. Any thread.
class Diagnosis {
 public:
  // All outlive this.
  Diagnosis(const c10d::Backend& backend, const c10d::Backend::Options& options,
            FlightRecorder& recorder, std::shared_ptr<FailureReport> failure_report)
      : backend_(backend),
        options_(options),
        recorder_(recorder),
        failure_report_(std::move(failure_report)) {}

  const std::shared_ptr<const GroupView>& group();
  TimeEstimate& estimate() { return estimate_; }

  // --- by the Issuer ---
  void begin_block() { counter_.begin_block(); }
  CallNumber end_block();
  // Numbers the call and makes it, seen by profilers if there are any. Not with a lock held: may
  // take the interpreter's.
  void make(Issue& issue, c10::function_ref<void()> make_call);
  // A block has taken the call.
  void collected(const Issue& issue);
  // Whether nobody has to hear of the call before it is over, so that it may be made without a
  // Pending.
  bool lets_run_at_once(const Issue& issue) const {
    return !issue.profiled && !issue.number.is_block && !hooked_.load(std::memory_order_relaxed);
  }
  // The call was made that way and took this long, until now.
  void over(const Issue& issue, std::chrono::nanoseconds duration);
  // The call has taken its place in the order of calls, and `pending` is about to be launched or
  // queued.
  void launching(const Issue& issue, const std::shared_ptr<Pending>& pending);
  // The call is not made because the group has failed; returns why, as the caller shall hear it.
  // Not with a lock held: may take the interpreter's.
  Error refused(Error error);
  // The call is launched, or queued on a device.
  void launched(const Issue& issue, Completer& completer, const std::shared_ptr<Pending>& pending);
  // ---

  // Throws kMisuse if there is a hook already.
  void set_hook(CompletionHooks::Hook hook);
  // Blocks until the hook, if there is one, was told of all calls.
  void wait_for_hook();
  void remove_hook();

  FlightRecorder& recorder() { return recorder_; }
  const std::shared_ptr<FailureReport>& failure_report() const { return failure_report_; }

 private:
  const c10d::Backend& backend_;
  const c10d::Backend::Options& options_;
  FlightRecorder& recorder_;
  const std::shared_ptr<FailureReport> failure_report_;
  CallCounter counter_;
  TimeEstimate estimate_;

  std::chrono::milliseconds timeout_of(const Issue& issue) const;

  std::atomic<bool> hooked_{false};
  std::once_flag named_;
  std::shared_ptr<const GroupView> group_;  // once named

  std::mutex mutex_;  // guards what follows
  std::shared_ptr<CompletionHooks> hooks_;
  FlightIds collected_;                                // of the open block
  std::unordered_map<uint64_t, FlightIds> in_blocks_;  // by the number of a block not launched yet
};

}  // namespace hccl_like
