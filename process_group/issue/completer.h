#pragma once
// Completes the Futures of calls that run on the host.
#include <functional>
#include <memory>
#include <thread>

#include "process_group/issue/pending.h"

namespace hccl_like {

class Engine;

// A Future cannot be told to drive the engine while somebody waits for it, so a thread waits in his
// place. It starts with the first Future asked for before its call is over, and runs whatever users
// hang on Futures. The engine is free meanwhile: such a callback may issue calls and wait for them.
class Completer {
 public:
  // The engine outlives it.
  explicit Completer(Engine& engine);
  // Completes what is over, leaves the rest incomplete, and joins the thread.
  ~Completer();

  // Any thread. Starts the thread now, for one who could not bear its absence later. Throws kSystem
  // if there is none to be had.
  void start();
  // Any thread. Calls `complete` on the completer's thread once the call is over, in the order in
  // which calls get there. Throws as start() does, and has done nothing then.
  void when_over(std::shared_ptr<Pending> pending, std::function<void()> complete);
  // The same for a Future: on the completer's own thread (a callback asks for a Future, and will
  // wait for it) it waits, and calls `complete`, before it returns.
  void complete_future(const std::shared_ptr<Pending>& pending, std::function<void()> complete);

 private:
  struct State;
  void start_locked();

  std::shared_ptr<State>
      state_;  // the thread's too: a callback may let the last group go, and this object with it
  std::thread thread_;
};

}  // namespace hccl_like
