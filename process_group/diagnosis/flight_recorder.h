#pragma once
// Ring of the last calls of this process, for diagnosis of hangs and failures.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include "core/base/error.h"
#include "core/counters/counter_file.h"
#include "core/settings/config.h"
#include "process_group/calls/calls.h"
#include "process_group/calls/group_view.h"

namespace hccl_like {

// State of a running call, as the recorder queries it. Thread-safe.
class RecordedCall {
 public:
  virtual ~RecordedCall() = default;
  virtual bool begun() const = 0;
  virtual bool over() = 0;
  virtual std::optional<Error> failure() const = 0;
  virtual std::chrono::steady_clock::time_point started() const = 0;
  virtual std::chrono::steady_clock::duration duration() const = 0;
  virtual int source() const = 0;
};

// One recorded call. Times are nanoseconds since the epoch; 0 means not yet.
struct FlightEntry {
  uint64_t id = 0;  // from 1, in the order of record()
  std::shared_ptr<const GroupView> group;
  CallNumber number;
  const char* title = "";  // Description::title
  int peer = -1;           // peer of a message, rank in the group
  struct Shapes {
    c10::SmallVector<int64_t, 8> sizes;  // of all tensors, concatenated
    c10::SmallVector<uint8_t, 4> dimensions;
    c10::SmallVector<c10::ScalarType, 4> types;
  } inputs, outputs;
  bool in_place = false;  // the outputs are the inputs; `outputs` says nothing
  bool uneven = false;    // the parts of the ranks differ
  std::chrono::milliseconds timeout{};
  int64_t created = 0, started = 0, completed = 0;
  std::chrono::nanoseconds duration{};
  bool retired = false;  // final; failed unless completed
  std::thread::id thread;
  std::array<char, 16> thread_name{};
  std::shared_ptr<torch::CapturedTraceback> stack;
  std::string_view line;                // call site (HCCL_LIKE_CALL_SITES)
  std::weak_ptr<RecordedCall> pending;  // until retired

  // For torch's analyser: "all_reduce", "all_gather_v".
  std::string name() const;
};

// Ring of entries. Unlike torch's recorder, record() neither takes the GIL nor allocates per call.
// Lives as long as the process. Thread-safe; never calls a RecordedCall with the lock held.
class FlightRecorder {
 public:
  struct Settings {
    size_t entries = 0;  // 0 disables recording
    bool stacks = false;
    bool dump_on_failure = false;
  };
  // Reads TORCH_FR_BUFFER_SIZE and `config`.
  static Settings settings(const Config& config);

  // Clears the ring if the size changes or after a fork.
  void configure(const Settings& settings);
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Captures this thread's stack for its next record(), if enabled. Takes the GIL: hold no lock.
  void capture_stack();

  using Id = uint64_t;
  // `pending` is null for a call in a block until attach() at launch.
  Id record(const std::shared_ptr<const GroupView>& group, const Issue& issue,
            std::chrono::milliseconds timeout, const std::weak_ptr<RecordedCall>& pending);
  // Held while a call that is over is counted, whether or not the ring is enabled.
  std::unique_lock<std::mutex> counting() { return std::unique_lock(mutex_); }
  // Counts and records a completed call.
  void record_over(GroupCounters& counters, std::span<const GroupCounters::Call> calls,
                   const std::shared_ptr<const GroupView>& group, const Issue& issue,
                   std::chrono::milliseconds timeout, std::chrono::steady_clock::time_point started,
                   std::chrono::steady_clock::time_point ended);
  void attach(std::span<const Id> ids, const std::weak_ptr<RecordedCall>& pending);
  // Records the outcome. Pending calls it once.
  void retire(std::span<const Id> ids, const RecordedCall& pending, bool failed);

  // Current entries, oldest first.
  std::vector<FlightEntry> entries();
  // All groups that have made calls.
  std::vector<std::shared_ptr<const GroupView>> groups() const;
  bool has_stacks() const { return stacks_; }
  Id last() const;

  // The first failure since configure(), which dumps tell. `lost`: global rank that the failure
  // says is gone; -1: none.
  struct Failure {
    std::string text;  // empty: none
    int lost = -1;
  };
  void note(const Failure& failure);
  Failure failure() const;
  // True for the first failure since configure(), if dumps on failure are enabled.
  bool wants_dump(const Error& error);

 private:
  FlightEntry& next(const std::shared_ptr<const GroupView>& group, const Issue& issue,
                    std::chrono::milliseconds timeout, int64_t created);
  int64_t wall_time(std::chrono::steady_clock::time_point time);
  // Rare parts of a record, which stay out of its code.
  [[gnu::cold]] void compare_clocks(std::chrono::steady_clock::time_point now);
  [[gnu::cold]] void set_group(FlightEntry& entry, const std::shared_ptr<const GroupView>& group);
  // Null if the entry was overwritten or cleared.
  FlightEntry* find(Id id);
  size_t after(size_t at) const { return at + 1 == settings_.entries ? 0 : at + 1; }
  FlightEntry& next_slot();

  std::atomic<bool> enabled_{false};
  std::atomic<bool> stacks_{false};
  mutable std::mutex mutex_;  // guards the members below
  Settings settings_;
  pid_t pid_ = 0;
  std::vector<FlightEntry> ring_;  // grows up to settings_.entries, within its capacity
  Id last_ = 0;
  size_t at_ = 0;  // slot of the next entry, without a division in each call
  std::map<std::string, std::shared_ptr<const GroupView>> groups_;
  bool dumped_ = false;
  Failure failure_;
  // Nanoseconds from steady to wall time. A second clock would cost each call as much as the rest.
  int64_t to_wall_ = 0;
  std::chrono::steady_clock::time_point to_wall_until_{};
};

}  // namespace hccl_like
