#pragma once
// What has to stay alive until a call is over: its operations, the tensors they use, and the copies still to be made.
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

#include "collectives/communicator.h"
#include "core/deadline.h"
#include "process_group/buffers.h"

namespace hccl_like {

class Aftermath;
class FlightRecorder;
class Session;

// Entries of the flight recorder.
using FlightIds = c10::SmallVector<uint64_t, 1>;

// Shared by the Work that the user holds (and may drop at any time) and by the Backend, which keeps it until it is over.
// Any thread.
//
// Staged calls (staging.h) are launched and waited for on threads of their own, lap by lap.
//
// On the host the operations are launched by whoever issued them. In stream order they are launched and waited for by
// run(), on a thread of the device. That thread frees nothing, because a device may not like memory to be freed there:
// what is held is let go by finish(), which the Backend calls when it next comes by. If an operation fails there, where
// nobody can be told, run() spoils what the call should have written: floating-point numbers become NaN.
class Pending {
 public:
  enum class Kind : uint8_t { kHost, kStream, kStaged };

  Pending(Kind kind, const std::shared_ptr<Session>& session,
          std::shared_ptr<Communicator> communicator);
  // A call on the host that was over before anybody could wait for it; `source` as below.
  Pending(std::chrono::steady_clock::time_point started,
          std::chrono::steady_clock::duration duration, int source);

  // --- by the thread that issues the call, before anybody else sees this object ---
  void add(std::shared_ptr<Operation> operation) { operations_.push_back(std::move(operation)); }
  // The user's tensors, until let_go_of_tensors() or, if that comes first, finish().
  void hold(at::TensorList tensors) { held_.insert(held_.end(), tensors.begin(), tensors.end()); }
  // What lies between the user's tensors and the network; until finish().
  void hold(Buffers& buffers);
  std::span<const std::shared_ptr<Operation>> operations() const { return operations_; }
  // kStream: copies back go on the stream, and `end` marks the point where they are done.
  const Copies& copies_back() const { return copies_back_; }
  void set_end(std::shared_ptr<c10::Event> end) { end_ = std::move(end); }
  // Who hears how the call ends: entries of `recorder`, which outlives this, and, if it fails, `aftermath`.
  void set_aftermath(FlightRecorder& recorder, FlightIds entries,
                     std::shared_ptr<Aftermath> aftermath);
  // ---

  // Starts the operations. With `waited_for`, the caller is about to wait().
  void launch(bool waited_for);

  // kStream: host functions for the device's streams; `self` is a Pending, which the Backend keeps until join() returned.
  // start() launches, join() waits, run() does both.
  static void start(void* self);
  static void join(void* self);
  static void run(void* self);

  // kStaged, by the thread that issues: how often end_laps() will be called; the operations that are not in laps are over when
  // they are done.
  void expect_laps(size_t calls);
  // --- kStaged: by the threads that copy ---
  // The operations are launched from now on. What the call takes counts from the first time.
  void begin();
  // The call fails, whatever its operations come to. The first error counts.
  void fail(Error error);
  bool failing() const;
  // The last lap of a call is over.
  void end_laps();
  // ---

  // Blocks until the operations are done; drives the engine itself if they run on the host. False if `deadline` came
  // first.
  bool wait(Deadline deadline);
  // The same for a caller who wants to answer signals meanwhile (interrupts.h); throws what he makes of them.
  bool wait_interruptibly(Deadline deadline);
  // The same for a thread that the session itself waits for before it closes the engine, and that so must not hold it.
  bool wait_inside_session(Deadline deadline);
  // Whether the operations are done, and the device's copies too.
  bool over();
  // Once over: makes the copies back (kHost), keeps the outcome and lets go of everything else. Idempotent.
  void finish();
  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // After wait(): blocks until the device's copies are done too, and finishes.
  void end();
  // kStream, once a stream of the user waits for the call: its order protects the user's tensors from now on.
  void let_go_of_tensors();
  // Gives up the communicator of a call that is not over.
  void abort(const std::string& reason);

  Kind kind() const { return kind_; }
  // Whether launch() was called.
  bool begun() const { return begun_.load(std::memory_order_relaxed); }
  // Of the temporaries that the call uses.
  uint64_t temporary_bytes() const;
  // Why the call failed or, if it is not over, why it will.
  std::optional<Error> failure() const;
  // The same as the program is told it; may ask the store.
  std::optional<Error> told_failure() const;
  // Of all the user's tensors that the call uses; none once it is finished.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages() const;
  // The rank that a recv heard from, once finished.
  int source() const { return source_; }
  // When the first operation began, and how long they took all together, once finished; kStaged: the copies too.
  std::chrono::steady_clock::time_point started() const { return started_; }
  std::chrono::steady_clock::duration duration() const { return duration_; }

 private:
  std::vector<std::shared_ptr<Operation>> copy_operations() const;
  void spoil() const;
  void settle();

  const Kind kind_;
  std::weak_ptr<Session> session_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<Operation>> operations_;
  std::vector<at::Tensor> held_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> let_go_;  // what was held
  std::vector<at::Tensor> temporaries_;
  std::vector<Written> written_;
  std::vector<Alias> aliases_;
  Copies copies_back_;
  std::shared_ptr<c10::Event> end_;
  std::atomic<bool> begun_{false};

  FlightRecorder* recorder_ = nullptr;
  FlightIds flight_;
  std::shared_ptr<Aftermath> aftermath_;

  std::mutex joined_mutex_;
  std::condition_variable joined_changed_;
  // kStream: the device's thread is done with this object; kStaged: all laps are over.
  bool joined_ = false;
  size_t calls_in_laps_ = 0;                                        // that are not over
  std::chrono::steady_clock::time_point begun_at_{}, laps_over_{};  // kStaged

  mutable std::mutex finish_mutex_;
  std::atomic<bool> finished_{false};
  std::condition_variable aftermath_over_;
  bool in_aftermath_ = false;  // a thread is at it
  std::optional<Error> error_;
  int source_ = kAnySource;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::duration duration_{};
};

}  // namespace hccl_like
