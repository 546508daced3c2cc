#include "process_group/issue/completer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

// Polling interval: the end of device work, or of the last copy of a slice, does not wake the
// engine.
constexpr std::chrono::milliseconds kSlice{1};

struct Entry {
  std::shared_ptr<Pending> pending;
  std::function<void()> complete;
  std::vector<std::shared_ptr<Operation>> operations;  // of the call

  bool on_host() const { return pending->kind() == Pending::Kind::kHost; }
  bool done() const {
    return std::ranges::all_of(operations, [](const auto& one) { return one->done(); });
  }
};

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
  explicit State(Engine& whose) : engine(whose) {}

  Engine& engine;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Entry> added;
  bool stopping = false;
  std::atomic<bool> news{false};  // added or stopping changed; polled while driving

  // Used by the thread only:
  std::list<Entry> waiting;

  void work() {
    while (await_entries()) {
      if (complete_some(waiting)) continue;
      const auto elsewhere = std::ranges::find_if_not(waiting, &Entry::on_host);
      if (elsewhere == waiting.end())
        engine.wait([this] { return something_to_do(); }, Deadline::never());
      else  // other threads drive it
        elsewhere->pending->wait_inside_session(Deadline::after(kSlice));
    }
    complete_some(waiting);
  }

  bool await_entries() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return stopping || !added.empty() || !waiting.empty(); });
    return take_news();
  }

  // With the mutex held. False if the thread must end.
  bool take_news() {
    news = false;
    waiting.splice(waiting.end(), added);
    return !stopping;
  }

  bool something_to_do() {
    if (news) {
      std::lock_guard lock(mutex);
      if (!take_news()) return true;
    }
    return std::ranges::any_of(waiting,
                               [](const Entry& entry) { return !entry.on_host() || entry.done(); });
  }
};

Completer::Completer(Engine& engine) : state_(std::make_shared<State>(engine)) {}

Completer::~Completer() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = state_->news = true;
  }
  state_->changed.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    state_->engine.nudge();
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
  auto operations = pending->operations();
  {
    std::lock_guard lock(state_->mutex);
    start_locked();
    state_->added.push_back({std::move(pending), std::move(complete), std::move(operations)});
    state_->news = true;
  }
  state_->changed.notify_one();
  state_->engine.nudge();
}

void Completer::complete_future(const std::shared_ptr<Pending>& pending,
                                std::function<void()> complete) {
  bool here;
  {
    std::lock_guard lock(state_->mutex);
    here = thread_.get_id() == std::this_thread::get_id();
  }
  if (!here) return when_over(pending, std::move(complete));
  pending->wait_inside_session(Deadline::never());
  pending->end();
  complete();
}

}  // namespace hccl_like
