#pragma once
// What all process groups of this process share.
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <c10/util/FunctionRef.h>

#include "collectives/engine/runtime.h"
#include "process_group/device/devices.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/watchdog.h"
#include "process_group/issue/completer.h"

namespace hccl_like {

class Backend;

// Held by shared_ptr by every Backend that is open, so it goes with the last group: no thread,
// descriptor or mapping is left then. Any thread.
class Session {
 public:
  // The first two outlive every session. Reads the settings from the environment.
  Session(Devices& devices, FlightRecorder& recorder, const ModulePaths& transports);
  // Not with the GIL held: joins threads that may want it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The session that `current` remembers if it lives, else a new one, which it remembers from then
  // on.
  static std::shared_ptr<Session> join(std::weak_ptr<Session>& current, Devices& devices,
                                       FlightRecorder& recorder, const ModulePaths& transports);

  Runtime& runtime() { return *runtime_; }
  Devices& devices() { return devices_; }
  Completer& completer() { return *completer_; }
  FlightRecorder& recorder() { return recorder_; }
  Watchdog& watchdog() { return *watchdog_; }
  // True in a child process made by fork(): its parent's connections are not its own, so nothing
  // here may be used.
  bool forked() const noexcept;

  void add(Backend& backend);
  void remove(Backend& backend);
  // Calls `see` for each backend that is open; it must not make or close any.
  void each(c10::function_ref<void(Backend&)> see);
  // Removes all of them.
  std::set<Backend*> take_all();

 private:
  Devices& devices_;
  FlightRecorder& recorder_;
  const uint64_t generation_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Completer> completer_;  // stopped before the engine goes
  std::unique_ptr<Watchdog> watchdog_;
  std::mutex mutex_;
  std::set<Backend*> backends_;
};

}  // namespace hccl_like
