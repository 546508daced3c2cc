#include "process_group/completer.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "core/log.h"
#include "core/own_thread.h"

namespace hccl_like {
namespace {

// Calls may end in another order than they were asked about, so no single one is waited for longer than this.
constexpr std::chrono::milliseconds kSlice{1};

struct Entry {
  std::shared_ptr<Pending> pending;
  std::function<void()> complete;
};

// Completes those that are over; true if there were any.
bool complete_some(std::list<Entry>& entries) {
  std::list<Entry> over;
  for (auto entry = entries.begin(); entry != entries.end();) {
    const auto next = std::next(entry);
    if (entry->pending->over()) over.splice(over.end(), entries, entry);
    entry = next;
  }
  for (Entry& entry : over) {
    try {
      entry.complete();
    } catch (const std::exception& error) {
      log_warn(std::string("a call is over, but whoever waits for it could not be told: ") +
               error.what());
    }
  }
  return !over.empty();
}

}  // namespace

struct Completer::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Entry> added;
  bool stopping = false;

  void work() {
    std::list<Entry> waiting;
    while (true) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stopping || !added.empty() || !waiting.empty(); });
        waiting.splice(waiting.end(), added);
        if (stopping) break;
      }
      if (!complete_some(waiting))
        waiting.front().pending->wait_inside_session(Deadline::after(kSlice));
    }
    complete_some(waiting);
  }
};

Completer::Completer() : state_(std::make_shared<State>()) {}

Completer::~Completer() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Completer::start() {
  std::lock_guard lock(state_->mutex);
  start_locked();
}

void Completer::start_locked() {
  if (!thread_.joinable())
    thread_ = own_thread("completes Futures", [state = state_] { state->work(); });
}

void Completer::when_over(std::shared_ptr<Pending> pending, std::function<void()> complete) {
  {
    std::lock_guard lock(state_->mutex);
    if (thread_.get_id() != std::this_thread::get_id()) {
      start_locked();
      state_->added.push_back({std::move(pending), std::move(complete)});
      state_->changed.notify_one();
      return;
    }
  }
  pending->wait_inside_session(Deadline::never());
  complete();
}

}  // namespace hccl_like
