#include "process_group/issue/completion_hooks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>

#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {

// A call not reported yet: from watch() until the hook returns, or until the call is dropped.
struct CompletionHooks::Untold {
  explicit Untold(std::shared_ptr<State> whose);
  ~Untold();
  Untold(const Untold&) = delete;
  Untold& operator=(const Untold&) = delete;

  const std::shared_ptr<State> state;
};

struct CompletionHooks::State {
  struct Over {
    std::shared_ptr<c10d::WorkInfo> info;
    std::shared_ptr<Untold> untold;
  };

  Hook hook;
  const std::string group;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Over> over;
  size_t untold = 0;  // number of Untold objects
  bool stopping = false;

  State(Hook function, std::string name) : hook(std::move(function)), group(std::move(name)) {}

  void add(Over call) {
    std::lock_guard lock(mutex);
    if (stopping) return;
    over.push_back(std::move(call));
    changed.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !over.empty(); });
      if (stopping) break;
      std::list<Over> next;
      next.splice(next.end(), over, over.begin());
      lock.unlock();
      tell(next.front().info);
      next.clear();  // ~Untold takes the lock
      lock.lock();
    }
    const std::list<Over> dropped = std::move(over);  // ~Untold takes the lock
    lock.unlock();
    hook = nullptr;  // may own the last reference to the group: released without the lock
  }

  void tell(const std::shared_ptr<c10d::WorkInfo>& info) const {
    try {
      hook(info);
    } catch (const std::exception& error) {
      log_warn("the completion hook of group " + group + " failed for " +
               c10d::opTypeToString(info->opType) + " #" + std::to_string(info->seq) + ": " +
               error.what());
    }
  }
};

CompletionHooks::Untold::Untold(std::shared_ptr<State> whose) : state(std::move(whose)) {
  std::lock_guard lock(state->mutex);
  ++state->untold;
}

CompletionHooks::Untold::~Untold() {
  std::lock_guard lock(state->mutex);
  --state->untold;
  state->changed.notify_all();
}

CompletionHooks::CompletionHooks(Hook hook, std::string group)
    : state_(std::make_shared<State>(std::move(hook), std::move(group))),
      thread_(own_thread("calls completion hooks", [state = state_] { state->work(); })) {}

CompletionHooks::~CompletionHooks() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CompletionHooks::watch(Completer& completer, const std::shared_ptr<Pending>& pending,
                            c10d::OpType type, uint64_t sequence) {
  const auto now = std::chrono::steady_clock::now();
  const auto untold = std::make_shared<Untold>(state_);
  completer.when_over(pending, [untold, pending, type, sequence, now] {
    pending->finish();
    const auto started = std::min(now, pending->started());  // a queued call begins later
    const auto finished = pending->started() + pending->duration();
    const std::chrono::duration<float> active = pending->duration();
    untold->state->add(
        {std::make_shared<c10d::WorkInfo>(type, sequence, started, finished, active), untold});
  });
}

void CompletionHooks::wait() {
  std::unique_lock lock(state_->mutex);
  if (thread_.get_id() == std::this_thread::get_id()) return;  // avoids a deadlock
  state_->changed.wait(lock, [&] { return state_->untold == 0; });
}

}  // namespace hccl_like
