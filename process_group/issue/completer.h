#pragma once
// Completes the Futures of host calls.
#include <functional>
#include <memory>
#include <thread>

#include "process_group/issue/pending.h"

namespace hccl_like {

class Engine;

// A thread that waits for calls, because waiting for a Future does not drive the engine. It starts
// with the first Future requested before its call is over. It also runs users' Future callbacks,
// which may issue calls and wait for them: the thread does not hold the engine meanwhile.
class Completer {
 public:
  // `engine` outlives this object.
  explicit Completer(Engine& engine);
  // Completes the calls that are over, leaves the others incomplete and joins the thread.
  ~Completer();

  // Starts the thread in advance. Throws kSystem if none can be created. Any thread.
  void start();
  // Calls `complete` on the completer's thread, in order of completion. If this throws, as start()
  // does, it has no effect. Any thread.
  void when_over(std::shared_ptr<Pending> pending, std::function<void()> complete);
  // As when_over(), except on the completer's thread, where a callback requests a Future and will
  // wait for it: there this waits for the call and runs `complete` before it returns.
  void complete_future(const std::shared_ptr<Pending>& pending, std::function<void()> complete);

 private:
  struct State;
  void start_locked();

  std::shared_ptr<State>
      state_;  // shared with the thread: a callback may release the last group and this object
  std::thread thread_;
};

}  // namespace hccl_like
