#pragma once
// Watchdog thread: reports this rank's state to peers and handles the dump signal.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "process_group/diagnosis/failure_report.h"

namespace hccl_like {

// One per session. Polls the store every 500 ms for peers that had a timeout, but only while a
// group has made no call for a quarter of its timeout. Thread-safe.
class Watchdog {
 public:
  // `recorder` lives as long as the process. `look`: called twice a second by the thread, not after
  // the destructor has begun; must not block. Throws kMisuse for an invalid HCCL_LIKE_DUMP_SIGNAL.
  Watchdog(FlightRecorder& recorder, const std::string& signal, std::function<void()> look);
  // Waits up to 200 ms for the thread, then detaches it: a store call may block it.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Watches the group until it is destroyed, if its store can be polled. Reads a new store's
  // question count. The first group starts the thread.
  void add(const std::shared_ptr<FailureReport>& group);

 private:
  struct State;
  static void look(State& state);
  void start();

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace hccl_like
