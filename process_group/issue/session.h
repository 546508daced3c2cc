#pragma once
// State shared by all process groups of this process.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <c10/util/FunctionRef.h>

#include "collectives/engine/runtime.h"
#include "core/counters/counter_file.h"
#include "process_group/device/devices.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/other_hosts.h"
#include "process_group/diagnosis/watchdog.h"
#include "process_group/issue/completer.h"
#include "transport/metrics/metrics_server.h"

namespace hccl_like {

class Backend;

// Every open Backend holds the session by shared_ptr. The session ends with the last group and
// leaves no thread, descriptor or mapping. Any thread.
class Session {
 public:
  // The first two outlive every session. Reads the settings from the environment.
  Session(Devices& devices, FlightRecorder& recorder, const ModulePaths& transports);
  // Joins threads that may need the GIL, so the caller must not hold it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns the session in `current`, or stores a new one there.
  static std::shared_ptr<Session> join(std::weak_ptr<Session>& current, Devices& devices,
                                       FlightRecorder& recorder, const ModulePaths& transports);

  Runtime& runtime() { return *runtime_; }
  Devices& devices() { return devices_; }
  Completer& completer() { return *completer_; }
  FlightRecorder& recorder() { return recorder_; }
  const std::shared_ptr<CounterFile>& counters() { return counters_; }
  Watchdog& watchdog() { return *watchdog_; }
  // True in a child of fork(), which must not use the parent's connections or anything else here.
  bool forked() const noexcept;

  // `communicator`: of the backend.
  void add(Backend& backend, const Communicator& communicator);
  void remove(Backend& backend);
  // Calls `see` for each open backend; `see` must not create or close any.
  void each(c10::function_ref<void(Backend&)> see);
  std::set<Backend*> take_all();
  // A group of this session is used, or needs no more words about it. Cheap enough for each call.
  void use() noexcept {
    if (!used_.load(std::memory_order_relaxed)) used_.store(true, std::memory_order_relaxed);
  }

 private:
  void warn_if_unused() const;

  Devices& devices_;
  FlightRecorder& recorder_;
  const uint64_t generation_;
  std::shared_ptr<CounterFile> counters_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Completer> completer_;     // destroyed before runtime_
  std::unique_ptr<OtherHosts> other_hosts_;  // destroyed after watchdog_, which looks into it
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<MetricsServer> metrics_;  // null without HCCL_LIKE_METRICS
  std::atomic<bool> used_{false};
  std::mutex mutex_;
  std::set<Backend*> backends_;
  int largest_ = 1;  // ranks of the largest group
  int rank_in_largest_ = 0;
};

}  // namespace hccl_like
