#pragma once
// What has to stay alive until a call is over: its operations, the tensors they use, and the copies
// still to be made.
#include <atomic>
#include <chrono>
#include <condition_variable>
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
#include "process_group/calls/buffers.h"
#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

class FailureReport;
class FlightRecorder;
class Session;

// Entries of the flight recorder.
using FlightIds = c10::SmallVector<uint64_t, 1>;

// All bits set is a NaN in every floating-point type; a byte of a boolean must not be anything but
// 0 and 1.
constexpr uint8_t byte_that_spoils(bool boolean) { return boolean ? 1 : 0xff; }

// Shared by the Work that the user holds (and may drop at any time) and by the Backend, which keeps
// it until it is over. Any thread.
//
// The laps of staged calls (staging.h) are launched and waited for on threads of their own, in
// stream order too.
//
// On the host the operations are launched by whoever issued them. In stream order they are launched
// and waited for by run(), on a thread of the device. That thread frees nothing, because a device
// may not like memory to be freed there: what is held is let go by finish(), which the Backend
// calls when it next comes by. If an operation fails there, where nobody can be told, run() spoils
// what the call should have written: floating-point numbers become NaN.
class Pending : public RecordedCall {
 public:
  enum class Kind : uint8_t { kHost, kStream, kStaged };

  Pending(Kind kind, const std::shared_ptr<Session>& session,
          std::shared_ptr<Communicator> communicator);
  // A call on the host that was over before anybody could wait for it; `source` as below.
  Pending(std::chrono::steady_clock::time_point started,
          std::chrono::steady_clock::duration duration, int source);

  // --- by the thread that issues the call, before anybody else sees this object ---
  void add(std::shared_ptr<Operation> operation);
  // One that others launch, and call end_laps() when it is over.
  void add_lap(std::shared_ptr<Operation> operation);
  // How often end_laps() will be called.
  void expect_laps(size_t calls);
  // The user's tensors, until let_go_of_tensors() or, if that comes first, finish().
  void hold(at::TensorList tensors) { held_.insert(held_.end(), tensors.begin(), tensors.end()); }
  // The same without keeping their memory: in stream order a program may free a tensor while the
  // call runs.
  void hold_weakly(at::TensorList tensors);
  // What lies between the user's tensors and the network; until finish().
  void hold(Buffers& buffers);
  void hold_temporary(at::Tensor tensor) { temporaries_.push_back(std::move(tensor)); }
  void copy_back(at::Tensor to, at::Tensor temporary);
  // Whether launch() would start anything.
  bool launches() const { return !operations_.empty(); }
  // Of the operation that was added first; 0 if there is none.
  uint32_t sequence() const { return first_.value_or(0); }
  // kStream: they go on the stream, and set_end() marks the point where they are done.
  const Copies& copies_back() const { return copies_back_; }
  // Who hears how the call ends: entries of `recorder`, which outlives this, and, if it fails,
  // `failure report`.
  void set_failure_report(FlightRecorder& recorder, FlightIds entries,
                          std::shared_ptr<FailureReport> failure_report);
  // ---

  // kStream, by the thread that issues the call, before anybody may finish it.
  void set_end(std::shared_ptr<c10::Event> end);

  // Starts the operations, but for laps. With `waited_for`, the caller is about to wait().
  void launch(bool waited_for);

  // kStream: host functions for the device's streams; `self` is a Pending, which the Backend keeps
  // until join() returned. start() launches, join() waits, run() does both.
  static void start(void* self);
  static void join(void* self);
  static void run(void* self);

  // --- by the threads that copy ---
  // The laps are launched from now on. What the call takes counts from the first time.
  void begin();
  // The call fails, whatever its operations come to. The first error counts.
  void fail(Error error);
  bool failing() const;
  // The last lap of a call is over.
  void end_laps();
  // ---

  // Blocks until the operations are done; drives the engine itself if they run on the host. False
  // if `deadline` came first.
  bool wait(Deadline deadline);
  // The same for a caller who wants to answer signals meanwhile (interrupts.h); throws what he
  // makes of them.
  bool wait_interruptibly(Deadline deadline);
  // The same for a thread that the session itself waits for before it closes the engine, and that
  // so must not hold it.
  bool wait_inside_session(Deadline deadline);
  // Whether the operations are done, and the device's copies too. False while another thread is in
  // finish().
  bool over() override;
  // Once over: makes the copies back (kHost), keeps the outcome and lets go of everything else.
  // Idempotent: one thread does it, the others wait until it is done. Not with the interpreter's
  // lock held, which the copies and the freed tensors may want.
  void finish();
  // The same, if the call is over, for a caller who may hold that lock. False if it is not over, or
  // another thread is at it.
  bool finish_if_over();
  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // After wait(): blocks until the device's copies are done too, and finishes.
  void end();
  // kStream, once a stream of the user waits for the call: its order protects the user's tensors
  // from now on.
  void let_go_of_tensors();
  // Gives up the communicator of a call that is not over.
  void abort(const std::string& reason);

  Kind kind() const { return kind_; }
  // All that the call consists of; none once it is finished.
  std::vector<std::shared_ptr<Operation>> operations() const;
  // Whether launch() was called.
  bool begun() const override { return begun_.load(std::memory_order_relaxed); }
  // Of the temporaries that the call uses.
  uint64_t temporary_bytes() const;
  // Why the call failed or, if it is not over, why it will.
  std::optional<Error> failure() const override;
  // The program has given up a wait for this call, and so knows that something is wrong with it;
  // see untold_failure().
  void give_up_waiting() { given_up_.store(true, std::memory_order_relaxed); }
  // As failure(), for a call that nobody has waited for.
  std::optional<Error> untold_failure() const {
    return given_up_.load(std::memory_order_relaxed) ? std::nullopt : failure();
  }
  // failure() as the program is told it; may ask the store.
  std::optional<Error> told_failure() const;
  // Of all the user's tensors that the call uses; none once it is finished.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages() const;
  // The rank that a recv heard from, once finished.
  int source() const override { return source_; }
  // When the first operation began, and how long they took all together, once finished; the copies
  // of laps too.
  std::chrono::steady_clock::time_point started() const override { return started_; }
  std::chrono::steady_clock::duration duration() const override { return duration_; }

 private:
  template <class See>
  void each_operation(See&& see) const;
  void wait_for_laps();
  void spoil() const;
  bool claim();
  void settle();
  void make_copies_back();
  void keep_outcome();
  struct Remains;
  Remains let_go();

  const Kind kind_;
  std::weak_ptr<Session> session_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<Operation>> operations_;  // all but
  std::vector<std::shared_ptr<Operation>> laps_;
  std::optional<uint32_t> first_;  // number
  std::vector<at::Tensor> held_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> let_go_;  // held weakly
  std::vector<at::Tensor> temporaries_;
  std::vector<Written> written_;
  std::vector<Alias> aliases_;
  Copies copies_back_;
  std::shared_ptr<c10::Event> end_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> given_up_{false};

  FlightRecorder* recorder_ = nullptr;
  FlightIds flight_;
  std::shared_ptr<FailureReport> failure_report_;

  std::mutex joined_mutex_;
  std::condition_variable joined_changed_;
  // kStream: the device's thread is done with this object; kStaged: all laps are over.
  bool joined_ = false;
  size_t calls_in_laps_ = 0;                                        // that are not over
  std::chrono::steady_clock::time_point begun_at_{}, laps_over_{};  // if there are any

  mutable std::mutex finish_mutex_;
  std::atomic<bool> finished_{false};
  std::condition_variable settled_;  // finished, or through with the failure report
  bool claimed_ = false;             // a thread settles the call, or has settled it
  bool in_failure_report_ = false;   // that thread still is
  std::optional<Error> error_;
  int source_ = kAnySource;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::duration duration_{};
};

}  // namespace hccl_like
