#pragma once
// Finishes operations that no caller waits for.
//
// Waking a thread costs more than a small operation, which usually ends in its first step or in a
// wait within microseconds. So after small work the thread dozes: it polls for more once per
// millisecond. Large work wakes it at once.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace hccl_like {

class BackgroundThread {
 public:
  // `unfinished`: whether there is work. `drive` does it, or leaves it to a thread that will call
  // wake(). Both are called on the thread; `unfinished` with a lock held.
  BackgroundThread(std::function<bool()> unfinished, std::function<void()> drive);
  // After stop() only.
  ~BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Any thread. Starts the thread if needed; warns if the system refuses it.
  void wake(bool large);
  // Joins the thread, which `drive` must not hold. Later calls of wake() do nothing.
  void stop();

 private:
  void loop();
  bool await_need();

  const std::function<bool()> unfinished_;
  const std::function<void()> drive_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool needed_ = false;
  bool dozes_ = false;     // polls for work instead of sleeping
  bool soon_ = false;      // work for the dozing thread
  bool may_doze_ = false;  // next time: the last work was small
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hccl_like
