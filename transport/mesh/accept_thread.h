#pragma once
// Accepts connections while no other thread does: peers connect on first use, which may be outside
// this process's calls.
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/fd.h"

namespace hccl_like {

class Life;

class AcceptThread {
 public:
  AcceptThread() = default;
  ~AcceptThread() { end(); }
  AcceptThread(const AcceptThread&) = delete;
  AcceptThread& operator=(const AcceptThread&) = delete;

  // Any thread; nothing if it runs already. `listener` is readable when a peer connects. Runs on
  // the thread of the process's Life, if given, else on its own. `serve` accepts connections until
  // none is pending; false if another thread is busy with that. It must not throw.
  void start(int listener, Life* life, std::function<bool()> serve);
  // Any thread. Makes it call `serve`; nothing if it does not run.
  void ring();
  // Ends and joins it, once `serve` returns.
  void end();

 private:
  void loop();

  std::mutex mutex_;  // guards the start
  Fd bell_;           // valid if it runs
  int listener_ = -1;
  std::function<bool()> serve_;
  std::atomic<bool> stopping_{false};
  Life* life_ = nullptr;
  std::thread thread_;
};

}  // namespace hccl_like
