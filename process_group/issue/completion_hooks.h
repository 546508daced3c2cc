#pragma once
// Tells users' functions of calls that are over.
#include <functional>
#include <memory>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "process_group/issue/completer.h"
#include "process_group/issue/pending.h"

namespace hccl_like {

// A hook is users' code: it may take the interpreter's lock, issue calls and wait for them. So it
// runs on a thread of its own, which holds nothing meanwhile. The completer notices the end of
// calls. A hook that throws is reported in the log and called again for the next call.
class CompletionHooks {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  CompletionHooks(Hook hook, std::string group);
  // Lets the hook that runs come to its end, and drops what it was not told of; wait() first. Not
  // with the interpreter's lock held.
  ~CompletionHooks();

  // Any thread: the hook hears of `pending`, which was launched and may be finished from now on,
  // when it is over. Throws as Completer::when_over() does.
  void watch(Completer& completer, const std::shared_ptr<Pending>& pending, c10d::OpType type,
             uint64_t sequence);
  // Blocks until the hook has been told of everything that is watched. What it can't be told of any
  // more, because the Completer dropped it, is not waited for. Returns at once from the hook.
  void wait();

 private:
  struct State;
  struct Untold;
  std::shared_ptr<State> state_;  // the thread's too: the hook may let the last group go, and this
  std::thread thread_;
};

}  // namespace hccl_like
