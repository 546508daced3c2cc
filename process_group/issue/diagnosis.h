#pragma once
// Everything that observes the calls of one group: recorder, counters, profilers, hook, failure
// report.
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <c10/util/FunctionRef.h>

#include "core/counters/counter_file.h"
#include "process_group/calls/group_view.h"
#include "process_group/diagnosis/failure_report.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/profiling.h"
#include "process_group/issue/completion_hooks.h"
#include "process_group/issue/timing.h"

namespace hccl_like {

// Part of a Backend. The Issuer reports each call. Any thread.
class Diagnosis {
 public:
  // The references outlive this object.
  Diagnosis(const c10d::Backend& backend, const c10d::Backend::Options& options,
            FlightRecorder& recorder, std::shared_ptr<CounterFile> counter_file,
            std::shared_ptr<FailureReport> failure_report)
      : backend_(backend),
        options_(options),
        recorder_(recorder),
        counter_file_(std::move(counter_file)),
        failure_report_(std::move(failure_report)) {}

  const std::shared_ptr<const GroupView>& group();
  TimeEstimate& estimate() { return estimate_; }

  // --- by the Issuer ---
  void begin_block() { counter_.begin_block(); }
  CallNumber end_block();
  // Numbers the call and runs `make_call`, inside a profiler record if a profiler is active. May
  // take the GIL, so the caller holds no lock.
  void make(Issue& issue, c10::function_ref<void()> make_call);
  void collected(const Issue& issue);
  // Whether no observer needs the call before it is over, so that it can run without a Pending.
  bool lets_run_at_once(const Issue& issue) const {
    return !issue.profiled && !issue.number.is_block && !hooked_.load(std::memory_order_relaxed);
  }
  // The call ran without a Pending.
  void over(const Issue& issue, std::chrono::steady_clock::time_point started,
            std::chrono::steady_clock::time_point ended);
  // The call has its place in the order of calls; `pending` is about to be launched or queued.
  void launching(const Issue& issue, const std::shared_ptr<Pending>& pending);
  // The call is not made at all, because the group has failed before.
  void count_refused();
  // The call is refused because the group has failed. Returns the error for the caller. May take
  // the GIL, so the caller holds no lock.
  Error refused(Error error);
  void launched(const Issue& issue, Completer& completer, const std::shared_ptr<Pending>& pending);
  // ---

  // The group leaves its session and joins another one. No call and no hook runs meanwhile.
  void leave();
  void reopen(std::shared_ptr<CounterFile> counter_file,
              std::shared_ptr<FailureReport> failure_report);

  // Throws kMisuse if there is a hook already.
  void set_hook(CompletionHooks::Hook hook);
  void wait_for_hook();
  void remove_hook();

  FlightRecorder& recorder() { return recorder_; }
  const std::shared_ptr<FailureReport>& failure_report() const { return failure_report_; }

 private:
  const c10d::Backend& backend_;
  const c10d::Backend::Options& options_;
  FlightRecorder& recorder_;
  std::shared_ptr<CounterFile> counter_file_;  // null between leave() and reopen()
  std::shared_ptr<FailureReport> failure_report_;
  CallCounter counter_;
  TimeEstimate estimate_;

  std::chrono::milliseconds timeout_of(const Issue& issue) const;
  void count_made(const Issue& issue);

  std::atomic<bool> hooked_{false};
  std::mutex naming_mutex_;  // taken to name the group, once in a session
  std::atomic<bool> is_named_{false};
  std::shared_ptr<const GroupView> group_;  // set by group(), like the counters
  std::shared_ptr<GroupCounters> counters_;

  std::mutex mutex_;                                   // guards the members below
  CompletionHooks::Hook hook_;                         // null: none
  std::shared_ptr<CompletionHooks> hooks_;             // runs it
  FlightIds collected_;                                // of the open block
  std::unordered_map<uint64_t, FlightIds> in_blocks_;  // by block number, until launched
};

}  // namespace hccl_like
