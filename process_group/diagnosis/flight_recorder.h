#pragma once
// The last calls of this process, kept for the time when one of them hangs or fails.
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
#include "core/settings/config.h"
#include "process_group/calls/calls.h"
#include "process_group/calls/group_view.h"

namespace hccl_like {

// What the recorder asks of a call that is under way. Any thread.
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

// A call as the recorder keeps it. Times are nanoseconds since the epoch, 0 if not yet.
struct FlightEntry {
  uint64_t id = 0;  // from 1, in the order of record(); 0: the slot is free
  std::shared_ptr<const GroupView> group;
  CallNumber number;
  std::string_view name;  // as torch's analyser knows it, "all_reduce"
  int peer = -1;          // of a message, by rank of the group
  struct Shapes {
    c10::SmallVector<int64_t, 8> sizes;  // of all tensors, one after the other
    c10::SmallVector<uint8_t, 4> dimensions;
    c10::SmallVector<c10::ScalarType, 4> types;
  } inputs, outputs;
  std::chrono::milliseconds timeout{};
  int64_t created = 0, started = 0, completed = 0;
  std::chrono::nanoseconds duration{};
  bool retired = false;  // nobody waits for it any more; if it is not completed then it failed
  std::thread::id thread;
  std::array<char, 16> thread_name{};
  std::shared_ptr<torch::CapturedTraceback> stack;
  std::string_view line;                // that made it, with HCCL_LIKE_CALL_SITES
  std::weak_ptr<RecordedCall> pending;  // until retired
};

// A ring of entries, written in well under a microsecond and read when somebody asks. Torch's own
// recorder has the format that its analyser reads (see flight_recorder_dump.h), but takes the
// interpreter's lock and allocates for every call.
//
// Lives as long as the process. Any thread; it never calls a RecordedCall with its lock held.
class FlightRecorder {
 public:
  struct Settings {
    size_t entries = 0;  // none: nothing is recorded
    bool stacks = false;
    bool dump_on_failure = false;
  };
  // How TORCH_FR_BUFFER_SIZE and our own settings are in the environment.
  static Settings settings(const Config& config);

  // Keeps what it has unless it has another size, or was recorded by the parent of this process.
  void configure(const Settings& settings);
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Keeps the stack of the calling thread for its next record(), if the user wants stacks. Takes
  // the interpreter's lock, so not with any of ours held.
  void capture_stack();

  using Id = uint64_t;
  // For when enabled(). `pending` is null for a call in a block, until the block is launched.
  Id record(const std::shared_ptr<const GroupView>& group, const Issue& issue,
            std::chrono::milliseconds timeout, const std::weak_ptr<RecordedCall>& pending);
  // The same for a call that is over already and took this long, until now.
  void record_over(const std::shared_ptr<const GroupView>& group, const Issue& issue,
                   std::chrono::milliseconds timeout, std::chrono::nanoseconds duration);
  void attach(std::span<const Id> ids, const std::weak_ptr<RecordedCall>& pending);
  // By Pending, once: how the call went.
  void retire(std::span<const Id> ids, const RecordedCall& pending, bool failed);

  // Oldest first, as they are now.
  std::vector<FlightEntry> entries();
  // Every group that has made a call.
  std::vector<std::shared_ptr<const GroupView>> groups() const;
  bool has_stacks() const { return stacks_; }
  // The last id given.
  Id last() const;

  // True for the first failure, if the user wants a dump then.
  bool wants_dump(const Error& error);

 private:
  FlightEntry& next(const std::shared_ptr<const GroupView>& group, const Issue& issue,
                    std::chrono::milliseconds timeout);
  FlightEntry& slot(Id id) { return ring_[id % ring_.size()]; }

  std::atomic<bool> enabled_{false};
  std::atomic<bool> stacks_{false};
  mutable std::mutex mutex_;  // guards what follows
  Settings settings_;
  pid_t pid_ = 0;
  std::vector<FlightEntry> ring_;
  Id last_ = 0;
  std::map<std::string, std::shared_ptr<const GroupView>> groups_;
  bool dumped_ = false;
};

}  // namespace hccl_like
