#pragma once
// Calls users' completion hooks.
#include <functional>
#include <memory>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "process_group/issue/completer.h"
#include "process_group/issue/pending.h"

namespace hccl_like {

// A hook is user code: it may take the GIL, issue calls and wait for them. It runs on its own
// thread, which holds no lock meanwhile. The Completer detects the end of calls. An exception of a
// hook is logged; the hook is called again for the next call.
class CompletionHooks {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  CompletionHooks(Hook hook, std::string group);
  // Waits for a running hook and drops undelivered calls; wait() first. Not with the GIL held.
  ~CompletionHooks();

  // Calls the hook when `pending` is over. `pending` was launched and may be finished from now on.
  // Throws as Completer::when_over() does. Any thread.
  void watch(Completer& completer, const std::shared_ptr<Pending>& pending, c10d::OpType type,
             uint64_t sequence);
  // Blocks until the hook has been called for every watched call, except calls that the Completer
  // dropped. Returns at once if the hook itself calls this.
  void wait();

 private:
  struct State;
  struct Untold;
  std::shared_ptr<State> state_;  // shared with the thread: the hook may release the last group
  std::thread thread_;
};

}  // namespace hccl_like
