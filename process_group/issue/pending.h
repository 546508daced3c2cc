#pragma once
// The state of one call until it is over: operations, tensors in use, outstanding copies.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/util/SmallVector.h>

#include "collectives/engine/communicator.h"
#include "core/base/deadline.h"
#include "core/counters/counter_file.h"
#include "process_group/calls/buffers.h"
#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

class FailureReport;
class FlightRecorder;
class Session;

using FlightIds = c10::SmallVector<uint64_t, 1>;
using CountedCalls = c10::SmallVector<GroupCounters::Call, 1>;

// All bits set is a NaN in every floating-point type. A byte of a boolean must be 0 or 1.
constexpr uint8_t byte_that_spoils(bool boolean) { return boolean ? 1 : 0xff; }

// Shared by the user's Work, which may be dropped at any time, and the Backend, which keeps this
// object until the call is over. Any thread.
// kHost: the issuing thread launches the operations. kStream: run() launches them and waits for
// them on a thread of the device. That thread frees nothing, because a device may forbid that;
// finish(), which the Backend calls later, frees everything. run() cannot report a failure, so it
// spoils the outputs of a failed call: floating-point numbers become NaN. The Staging's threads
// (staging.h) launch slices and wait for them, in stream order too.
class Pending : public RecordedCall {
 public:
  enum class Kind : uint8_t { kHost, kStream, kStaged };

  Pending(Kind kind, const std::shared_ptr<Session>& session,
          std::shared_ptr<Communicator> communicator);
  // A host call that is already over; `source` as below.
  Pending(std::chrono::steady_clock::time_point started,
          std::chrono::steady_clock::duration duration, int source);

  // --- by the issuing thread, before another thread sees this object ---
  void add(std::shared_ptr<Operation> operation);
  // An operation of a slice: a Staging launches it and calls end_slices() afterwards. All but the
  // first may be added later, by the Staging's threads.
  void add_slice(std::shared_ptr<Operation> operation);
  // The number of times that end_slices() will be called.
  void expect_slices(size_t calls);
  // Holds the user's tensors until let_go_of_tensors() or finish().
  void hold(at::TensorList tensors) { held_.insert(held_.end(), tensors.begin(), tensors.end()); }
  // Keeps no memory: in stream order a program may free a tensor while the call runs.
  void hold_weakly(at::TensorList tensors);
  // Holds the buffers between the user's tensors and the network until finish().
  void hold(Buffers& buffers);
  // Until this object's end: what the operations use besides.
  void keep(std::shared_ptr<const void> used) { used_.push_back(std::move(used)); }
  void hold_temporary(at::Tensor tensor) { temporaries_.push_back(std::move(tensor)); }
  void copy_back(at::Tensor to, at::Tensor temporary);
  // Whether launch() would start anything.
  bool launches() const { return !operations_.empty(); }
  // Sequence number of the operation added first; 0 if there is none.
  uint32_t sequence() const { return first_.value_or(0); }
  // kStream: the issuing thread queues these copies; set_end() marks their end.
  const Copies& copies_back() const { return copies_back_; }
  // Called once, when the outputs are final and before a waiting thread learns of the call's end.
  void when_final(std::function<void()> look) { look_ = std::move(look); }
  // `recorder` outlives this object. `failure_report` is used only if the call fails.
  void set_failure_report(FlightRecorder& recorder, FlightIds entries,
                          std::shared_ptr<FailureReport> failure_report);
  // The outcome is counted once, after GroupCounters::launched().
  void set_counters(FlightRecorder& recorder, std::shared_ptr<GroupCounters> counters,
                    CountedCalls calls);
  // ---

  // kStream, by the issuing thread, before another thread may finish the call.
  void set_end(std::shared_ptr<c10::Event> end);

  // Starts the operations, except slices. `waited_for`: the caller is about to wait().
  void launch(bool waited_for);

  // kStream: host functions for device streams. `self` is a Pending, which the Backend keeps until
  // join() returns. start() launches, join() waits, run() does both.
  static void start(void* self);
  static void join(void* self);
  static void run(void* self);

  // --- by the threads that copy ---
  // Slices are launched from now on. The first begin() starts the call's duration.
  void begin();
  // Fails the call, whatever the outcome of its operations. The first error counts.
  void fail(Error error);
  bool failing() const;
  // The last slice of one staged call is over.
  void end_slices();
  // ---

  // Blocks until the operations are done; drives the engine on the host. False after `deadline`.
  bool wait(Deadline deadline);
  // As wait(), with signal checks (interrupts.h), whose exceptions it throws.
  bool wait_interruptibly(Deadline deadline);
  // As wait(), for a thread that must not hold the session, because the session joins that thread.
  bool wait_inside_session(Deadline deadline);
  // Whether operations and device copies are done. False while another thread is in finish().
  bool over() override;
  // After the end of the call: makes the copies back (kHost, kStaged), keeps the outcome and
  // releases everything else. Idempotent: one thread does it, the others wait. Not with the GIL
  // held, which the copies and the freed tensors may need.
  void finish();
  // As finish(), without waiting: false if the call is not over or another thread is in finish().
  // The caller may hold the GIL.
  bool finish_if_over();
  // Whether the call is over without an error. As finish_if_over(), except that a call in stream
  // order has succeeded also while another thread is in finish().
  bool succeeded();
  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // After wait(): blocks until the device's copies are done, then finishes the call.
  void end();
  // kStream, after a stream of the user waits for the call: stream order now protects the tensors.
  void let_go_of_tensors();
  // Aborts the communicator if the call is not over.
  void abort(const std::string& reason);

  Kind kind() const { return kind_; }
  // All operations, slices included; empty after finish().
  std::vector<std::shared_ptr<Operation>> operations() const;
  // Whether launch() or begin() was called.
  bool begun() const override { return begun_.load(std::memory_order_relaxed); }
  uint64_t temporary_bytes() const;
  // The error of a failed call. Before the end of the call: the error that it will have.
  std::optional<Error> failure() const override;
  // A wait of the program timed out, so the program knows of the problem; see untold_failure().
  void give_up_waiting() { given_up_.store(true, std::memory_order_relaxed); }
  // failure() that the program does not know of: nothing after give_up_waiting().
  std::optional<Error> untold_failure() const {
    return given_up_.load(std::memory_order_relaxed) ? std::nullopt : failure();
  }
  // failure() with the text for the program; may query the store.
  std::optional<Error> told_failure() const;
  // Storages of the user's tensors in use; empty after finish().
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages() const;
  // A receive's source rank, after finish().
  int source() const override { return source_; }
  // Start of the first operation and duration of all, copies of slices included; after finish().
  std::chrono::steady_clock::time_point started() const override { return started_; }
  std::chrono::steady_clock::duration duration() const override { return duration_; }

 private:
  template <class See>
  void each_operation(See&& see) const;
  void wait_for_slices();
  void spoil() const;
  bool claim();
  void settle();
  void make_copies_back();
  void count();
  void keep_outcome();
  struct Remains;
  Remains let_go();

  const Kind kind_;
  std::weak_ptr<Session> session_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<Operation>> operations_;  // without slices
  std::vector<std::shared_ptr<Operation>> slices_;
  std::optional<uint32_t> first_;  // sequence number
  std::vector<at::Tensor> held_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> let_go_;  // held weakly
  std::vector<at::Tensor> temporaries_;
  std::vector<std::shared_ptr<const void>> used_;
  std::vector<Written> written_;
  std::vector<Alias> aliases_;
  Copies copies_back_;
  std::shared_ptr<c10::Event> end_;
  std::function<void()> look_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> given_up_{false};

  std::shared_ptr<GroupCounters> counters_;  // until the call is over
  CountedCalls counted_;
  FlightRecorder* recorder_ = nullptr;
  FlightIds flight_;
  std::shared_ptr<FailureReport> failure_report_;

  std::mutex joined_mutex_;
  std::condition_variable joined_changed_;
  // kStream: the device's thread no longer uses this object; kStaged: all slices are over.
  bool joined_ = false;
  size_t calls_in_slices_ = 0;                                        // not over
  std::chrono::steady_clock::time_point begun_at_{}, slices_over_{};  // with slices

  mutable std::mutex finish_mutex_;
  std::atomic<bool> finished_{false};
  std::condition_variable settled_;  // finished_ set or in_failure_report_ cleared
  bool claimed_ = false;             // a thread settles or has settled the call
  bool in_failure_report_ = false;   // that thread makes the failure report
  std::optional<Error> error_;
  int source_ = kAnySource;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::duration duration_{};
};

}  // namespace hccl_like
