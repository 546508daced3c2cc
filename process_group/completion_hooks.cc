#include "process_group/completion_hooks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>

#include "core/log.h"
#include "core/own_thread.h"

namespace hccl_like {

struct CompletionHooks::State {
  Hook hook;
  const std::string group;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<std::shared_ptr<c10d::WorkInfo>> over;
  size_t untold = 0;  // watched, and the hook has not returned
  bool stopping = false;

  State(Hook function, std::string name) : hook(std::move(function)), group(std::move(name)) {}

  void add(std::shared_ptr<c10d::WorkInfo> info) {
    std::lock_guard lock(mutex);
    over.push_back(std::move(info));
    changed.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !over.empty(); });
      if (stopping) break;
      const auto info = std::move(over.front());
      over.pop_front();
      lock.unlock();
      tell(info);
      lock.lock();
      --untold;
      changed.notify_all();
    }
    lock.unlock();
    hook = nullptr;  // it may be the user's last hold on something that ends with this thread
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
  {
    std::lock_guard lock(state_->mutex);
    ++state_->untold;
  }
  const auto now = std::chrono::steady_clock::now();
  completer.when_over(pending, [state = state_, pending, type, sequence, now] {
    pending->finish();
    const auto started = std::min(now, pending->started());  // a queued call begins later
    const auto finished = pending->started() + pending->duration();
    const std::chrono::duration<float> active = pending->duration();
    state->add(std::make_shared<c10d::WorkInfo>(type, sequence, started, finished, active));
  });
}

void CompletionHooks::wait() {
  std::unique_lock lock(state_->mutex);
  if (thread_.get_id() == std::this_thread::get_id()) return;  // it would wait for itself
  state_->changed.wait(lock, [&] { return state_->untold == 0; });
}

}  // namespace hccl_like
