#include "runtime/stream.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/blocking.h"
#include "memory/strict.h"
#include "runtime/capture.h"

namespace torch_sim {
namespace {

constexpr auto kWorkerStays = std::chrono::seconds(5);
// Work often comes in bursts and is often short: looking for it, or for its end, is much cheaper
// than being woken.
constexpr int kLooks = 30;

std::atomic<bool> stopped{false};

// The streams whose work this thread is doing, the innermost first.
struct Doing {
  const Stream* stream;
  Doing* outer;
  std::chrono::steady_clock::time_point queued_at = std::chrono::steady_clock::now();
};
thread_local Doing* doing = nullptr;

class MarkDoing {
 public:
  explicit MarkDoing(const Stream* stream) : entry_{stream, doing} { doing = &entry_; }
  ~MarkDoing() { doing = entry_.outer; }
  void queued(std::chrono::steady_clock::time_point at) { entry_.queued_at = at; }

 private:
  Doing entry_;
};

bool is_doing(const Stream* stream) {
  for (const Doing* d = doing; d; d = d->outer)
    if (d->stream == stream) return true;
  return false;
}

}  // namespace

void Stream::stop_all() { stopped = true; }

std::chrono::steady_clock::time_point Stream::queued_at() {
  return doing ? doing->queued_at : std::chrono::steady_clock::now();
}

std::shared_ptr<Capture> Stream::capture() const {
  if (!captures_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mutex_);
  return capture_;
}

void Stream::set_capture(std::shared_ptr<Capture> capture) {
  std::lock_guard lock(mutex_);
  captures_.store(capture != nullptr, std::memory_order_release);
  capture_ = std::move(capture);
}

void Stream::refuse_in_capture() const {
  if (capture())
    throw std::logic_error(
        "sim: this waits for the device, which the capture of a graph does not allow");
}

void Stream::enqueue(Work work) {
  if (const auto capture = this->capture()) return capture->add(*this, std::move(work));
  std::lock_guard lock(mutex_);
  if (!has_worker_) start_worker();
  queue_.push_back({tickets_++, std::move(work)});
  worker_wakes_.notify_one();
}

void Stream::enqueue_or_run(const Work& work) {
  if (is_doing(this) || captures_ || by_chance()) return enqueue(work);
  {
    std::unique_lock lock(mutex_);
    if (!idle()) {
      lock.unlock();
      return enqueue(work);
    }
    ++tickets_;
  }
  MarkDoing mark(this);
  try {
    work();
  } catch (const std::exception&) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  end_turn();
}

void Stream::run(const Work& work) {
  if (is_doing(this)) return work();
  refuse_in_capture();
  std::unique_lock lock(mutex_);
  wait_for_turn(lock, tickets_++);
  lock.unlock();
  struct EndTurn {
    Stream* stream;
    ~EndTurn() {
      std::lock_guard lock(stream->mutex_);
      stream->end_turn();
    }
  } end{this};
  MarkDoing mark(this);
  work();
}

void Stream::synchronize() {
  if (is_doing(this)) return;
  refuse_in_capture();
  std::unique_lock lock(mutex_);
  wait_for_turn(lock, tickets_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Stream::wait_for_turn(std::unique_lock<std::mutex>& lock, uint64_t ticket) {
  if (turn_ >= ticket) return;
  lock.unlock();  // the interpreter's lock is never waited for while this one is held
  for (int look = 0; look < kLooks && turn_ < ticket; ++look) sched_yield();
  if (turn_ < ticket) {
    BlockingRegion blocking;
    lock.lock();
    ++waiting_;
    turn_ended_.wait(lock, [&] { return turn_ >= ticket; });
    --waiting_;
    lock.unlock();
  }
  lock.lock();
}

void Stream::end_turn() {
  turn_.fetch_add(1, std::memory_order_release);
  if (waiting_ > 0) turn_ended_.notify_all();
  if (next_is_queued()) worker_wakes_.notify_one();
}

bool Stream::next_is_queued() const { return !queue_.empty() && queue_.front().ticket == turn_; }

// The worker takes no signals: those are for the threads of the program.
void Stream::start_worker() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refusal;
  try {
    std::thread([this] { work_until_idle(); }).detach();
    has_worker_ = true;
  } catch (const std::system_error& error) {
    refusal = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!refusal.empty())
    throw std::runtime_error(
        "cannot start the thread of a stream of sim:" + std::to_string(device_) + ": " + refusal +
        "; allow more threads (ulimit -u, or the pids limit of the container)");
}

void Stream::work_until_idle() {
  pthread_setname_np(pthread_self(),
                     ("sim" + std::to_string(device_) + "." + std::to_string(id_)).c_str());
  MarkDoing mark(this);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!next_is_queued()) {
      lock.unlock();
      for (int look = 0; look < kLooks && idle(); ++look) sched_yield();
      lock.lock();
      if (!worker_wakes_.wait_for(lock, kWorkerStays, [&] { return next_is_queued(); }) &&
          queue_.empty())
        break;
      if (!next_is_queued()) continue;
    }
    if (stopped) worker_wakes_.wait(lock, [] { return false; });
    Work work = std::move(queue_.front().work);
    mark.queued(queue_.front().at);
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    rest();
    try {
      work();
    } catch (const abi::__forced_unwind&) {
      throw;  // the thread is being ended by the interpreter
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // what it held may take this or another stream's lock when it goes
    lock.lock();
    if (failure && !error_) error_ = failure;
    end_turn();
  }
  has_worker_ = false;
}

}  // namespace torch_sim
