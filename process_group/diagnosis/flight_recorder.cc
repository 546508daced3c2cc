#include "process_group/diagnosis/flight_recorder.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "process_group/diagnosis/flight_recorder_shapes.h"
#include "process_group/diagnosis/profiling.h"

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr int kDefaultEntries = 2000;  // torch's default

template <class Clock>
int64_t nanoseconds_of(std::chrono::time_point<Clock> time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

// Cached: prctl() costs as much as the rest of a record.
const std::array<char, 16>& thread_name() {
  constinit static thread_local std::array<char, 16> name{};
  if (name[0] == '\0') prctl(PR_GET_NAME, name.data());
  return name;
}

thread_local std::shared_ptr<torch::CapturedTraceback> captured;

// The ring does not stay in the L1 cache, and waiting for an entry takes longer than filling it.
void fetch(const FlightEntry& entry) {
  constexpr size_t kLine = 64;
  const auto* const bytes = reinterpret_cast<const char*>(&entry);
  for (size_t at = 0; at < sizeof(FlightEntry); at += kLine)
    __builtin_prefetch(bytes + at, /*to write=*/1);
}

}  // namespace

FlightRecorder::Settings FlightRecorder::settings(const Config& config) {
  const int entries =
      c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, kDefaultEntries);
  return {.entries = static_cast<size_t>(std::max(entries, 0)),
          .stacks = config.flight_stacks,
          .dump_on_failure = config.flight_dump};
}

void FlightRecorder::configure(const Settings& settings) {
  std::lock_guard lock(mutex_);
  const size_t old = std::exchange(settings_, settings).entries;
  dumped_ = false;
  enabled_ = settings.entries > 0;
  stacks_ = settings.stacks;
  const pid_t pid = getpid();
  if (pid == pid_ && old == settings.entries) return;
  pid_ = pid;
  last_ = 0, at_ = 0;
  groups_.clear();
  std::vector<FlightEntry>().swap(ring_);
  ring_.reserve(settings.entries);
}

void FlightRecorder::capture_stack() {
  if (enabled() && stacks_) captured = torch::CapturedTraceback::gather(true, true, false);
}

// Hold the lock. Follows changes of the system's clock within a second.
int64_t FlightRecorder::wall_time(steady_clock::time_point time) {
  if (time >= to_wall_until_) compare_clocks(time);
  return nanoseconds_of(time) + to_wall_;
}

void FlightRecorder::compare_clocks(steady_clock::time_point now) {
  to_wall_ = nanoseconds_of(system_clock::now()) - nanoseconds_of(steady_clock::now());
  to_wall_until_ = now + std::chrono::seconds(1);
}

void FlightRecorder::set_group(FlightEntry& entry, const std::shared_ptr<const GroupView>& group) {
  entry.group = group;
  groups_[group->name] = group;
}

FlightEntry* FlightRecorder::find(Id id) {
  const size_t at = (id - 1) % settings_.entries;
  return at < ring_.size() && ring_[at].id == id ? &ring_[at] : nullptr;
}

FlightEntry& FlightRecorder::next_slot() {
  ++last_;
  if (at_ == ring_.size()) ring_.emplace_back();
  FlightEntry& entry = ring_[at_];
  at_ = after(at_);
  fetch(ring_.data()[at_]);  // for the next call
  return entry;
}

// Hold the lock. The recorder must be enabled.
FlightEntry& FlightRecorder::next(const std::shared_ptr<const GroupView>& group, const Issue& issue,
                                  std::chrono::milliseconds timeout, int64_t created) {
  FlightEntry& entry = next_slot();
  entry.id = last_;
  if (entry.group != group) set_group(entry, group);
  entry.number = issue.number;
  entry.peer = issue.number.is_message ? root_of(issue, -1) : -1;
  describe(issue, group->size, entry);
  entry.timeout = timeout;
  entry.created = created;
  entry.started = entry.completed = 0;
  entry.duration = {};
  entry.retired = false;
  entry.thread = std::this_thread::get_id();
  entry.thread_name = thread_name();
  entry.stack = stacks_ ? std::exchange(captured, nullptr) : nullptr;
  entry.line = issue.line;
  entry.pending.reset();
  return entry;
}

FlightRecorder::Id FlightRecorder::record(const std::shared_ptr<const GroupView>& group,
                                          const Issue& issue, std::chrono::milliseconds timeout,
                                          const std::weak_ptr<RecordedCall>& pending) {
  std::lock_guard lock(mutex_);
  if (!enabled()) return 0;
  next(group, issue, timeout, nanoseconds_of(system_clock::now())).pending = pending;
  return last_;
}

// Most calls are recorded here. Between two of them a program runs so much code that the caches
// have none of this left: in one piece it is back sooner.
[[gnu::hot, gnu::flatten]]
void FlightRecorder::record_over(GroupCounters& counters,
                                 std::span<const GroupCounters::Call> calls,
                                 const std::shared_ptr<const GroupView>& group, const Issue& issue,
                                 std::chrono::milliseconds timeout,
                                 steady_clock::time_point started, steady_clock::time_point ended) {
  std::lock_guard lock(mutex_);
  counters.over(calls, ended - started);
  if (!enabled()) return;
  FlightEntry& entry = next(group, issue, timeout, wall_time(started));
  entry.duration = ended - started;
  entry.started = entry.created;
  entry.completed = entry.created + entry.duration.count();
  entry.retired = true;
}

void FlightRecorder::attach(std::span<const Id> ids, const std::weak_ptr<RecordedCall>& pending) {
  std::lock_guard lock(mutex_);
  if (!enabled()) return;
  for (const Id id : ids) {
    if (FlightEntry* const entry = find(id)) entry->pending = pending;
  }
}

void FlightRecorder::retire(std::span<const Id> ids, const RecordedCall& pending, bool failed) {
  std::lock_guard lock(mutex_);
  if (!enabled()) return;
  const int64_t started = wall_time(pending.started());
  for (const Id id : ids) {
    FlightEntry* const entry = find(id);
    if (entry == nullptr) continue;
    entry->retired = true;
    entry->pending.reset();
    entry->started = std::max(started, entry->created);
    if (entry->number.is_message && entry->peer < 0) entry->peer = pending.source();
    if (failed) continue;
    entry->duration = pending.duration();
    entry->completed = entry->started + entry->duration.count();
  }
}

std::vector<FlightEntry> FlightRecorder::entries() {
  std::vector<FlightEntry> all;
  {
    std::lock_guard lock(mutex_);
    const auto oldest = ring_.begin() + static_cast<ptrdiff_t>(at_ == ring_.size() ? 0 : at_);
    all.assign(oldest, ring_.end());
    all.insert(all.end(), ring_.begin(), oldest);
  }
  const int64_t now = nanoseconds_of(system_clock::now());
  for (FlightEntry& entry : all) {
    const auto pending = entry.pending.lock();
    if (!pending) continue;
    if (pending->begun()) entry.started = now;
    if (pending->over() && !pending->failure()) entry.completed = now;
  }
  return all;
}

FlightRecorder::Id FlightRecorder::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

std::vector<std::shared_ptr<const GroupView>> FlightRecorder::groups() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const GroupView>> all;
  for (const auto& [name, group] : groups_) all.push_back(group);
  return all;
}

void FlightRecorder::note(const Failure& failure) {
  std::lock_guard lock(mutex_);
  if (failure_.text.empty()) failure_ = failure;
}

FlightRecorder::Failure FlightRecorder::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool FlightRecorder::wants_dump(const Error& error) {
  if (error.code == ErrorCode::kAborted && error.peer < 0) return false;  // aborted locally
  std::lock_guard lock(mutex_);
  return enabled_ && settings_.dump_on_failure && !std::exchange(dumped_, true);
}

}  // namespace hccl_like
