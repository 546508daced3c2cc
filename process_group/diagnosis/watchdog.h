#pragma once
// A thread that sleeps: it answers for a rank that is busy elsewhere, and sees to a signal.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "process_group/diagnosis/failure_report.h"

namespace hccl_like {

// One for a session. It looks into the store, twice a second, whether another rank, whose call has
// run into its time-out, wants to know where this one is: only while this rank has made no call in
// a group for so long that another's may have, a quarter of its time-out. A job that works is never
// seen there. Any thread.
class Watchdog {
 public:
  // `recorder` lives as long as the process. `signal`: what HCCL_LIKE_DUMP_SIGNAL says; throws
  // kMisuse if it is none.
  Watchdog(FlightRecorder& recorder, const std::string& signal);
  // Waits a moment for the thread, which is left behind if a store keeps it.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Starts the thread with the first that it can be asked for. Forgets it when it is gone. Asks a
  // store that it does not know how much was asked before.
  void add(const std::shared_ptr<FailureReport>& group);

 private:
  struct State;
  static void look(State& state);
  void start();

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace hccl_like
