#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace torch_sim {

class Capture;

// An ordered queue of work of one device. Every piece of work draws a ticket, and runs when all
// earlier tickets are done. Queued work runs on the stream's worker thread, which starts with the
// first work that needs it and leaves when there has been none for a while. Work given to `run` has
// its turn in the same order, but on the calling thread.
//
// All methods may be called by any thread. Streams live as long as the process.
class Stream {
 public:
  using Work = std::function<void()>;

  Stream(int device, int64_t id, int priority) : device_(device), id_(id), priority_(priority) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int device() const { return device_; }
  int64_t id() const { return id_; }
  int priority() const { return priority_; }

  // Queues the work and returns at once.
  void enqueue(Work work);
  // As `enqueue`, but when nothing is queued or running the work is done here and now. For work
  // that is done sooner than a thread could be woken for it.
  void enqueue_or_run(const Work& work);
  // Waits for the work's turn and does it on this thread; throws what the work throws. Called from
  // work of this very stream it does not wait.
  void run(const Work& work);

  // True if everything queued so far is done.
  bool idle() const {
    return turn_.load(std::memory_order_acquire) == tickets_.load(std::memory_order_relaxed);
  }
  // Blocks until everything queued so far is done. Throws the first error of queued work that
  // nobody was told of yet.
  void synchronize();

  // Null unless the stream records its work for a graph (capture.h). Then nothing that the host
  // would wait for is allowed.
  std::shared_ptr<Capture> capture() const;
  void set_capture(std::shared_ptr<Capture> capture);

  // When the work that this thread is doing for a stream was queued; now, if it does none.
  static std::chrono::steady_clock::time_point queued_at();

  // From now on no stream of the process begins another piece of queued work. For the end of the
  // process.
  static void stop_all();

 private:
  struct Queued {
    uint64_t ticket;
    Work work;
    std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  };

  void refuse_in_capture() const;
  void work_until_idle();
  void start_worker();
  // All three with the lock held.
  void wait_for_turn(std::unique_lock<std::mutex>& lock, uint64_t ticket);
  void end_turn();
  bool next_is_queued() const;

  const int device_;
  const int64_t id_;
  const int priority_;

  mutable std::mutex mutex_;
  std::atomic<bool> captures_{false};
  std::shared_ptr<Capture> capture_;
  std::condition_variable worker_wakes_;
  std::condition_variable turn_ended_;
  std::deque<Queued> queue_;
  std::atomic<uint64_t> tickets_{0};  // drawn so far
  std::atomic<uint64_t> turn_{0};     // whose turn it is; all below are done
  int waiting_ = 0;                   // threads that wait for a turn's end
  bool has_worker_ = false;
  std::exception_ptr error_;
};

}  // namespace torch_sim
