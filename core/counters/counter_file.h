#pragma once
// Counters of the calls of this process, in memory that other processes of the user can read.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "core/base/fd.h"
#include "core/counters/counter_layout.h"
#include "core/memory/mapping.h"

namespace hccl_like {

class GroupCounters;

// One per session. The file is an anonymous memfd of mode 0600, which readers open through
// /proc/<pid>/fd; it ends with close() or the process, so nothing is left to sweep. Without
// descriptors or memory the counters go to private memory, which nobody else sees. Any thread.
class CounterFile : public std::enable_shared_from_this<CounterFile> {
 public:
  static constexpr const char* kName = "hccl-like-counters";

  // `kinds`: names of the collectives, by kind. Throws kSystem if there is no memory at all.
  static std::shared_ptr<CounterFile> make(std::span<const std::string_view> kinds);
  CounterFile(const CounterFile&) = delete;
  CounterFile& operator=(const CounterFile&) = delete;

  struct GroupInfo {
    uint64_t id = 0;
    int rank = 0;
    int size = 1;
    int global_rank = 0;
    std::string_view name;
  };
  // Counters of a new group until the last owner drops them. Never null; counts nothing if all
  // slots are taken.
  std::shared_ptr<GroupCounters> add(const GroupInfo& group);
  // A slot for the connection to a rank of the largest group, until the file ends; null if all are
  // taken. The caller counts in it and changes the rank when a larger group is made.
  counter_layout::Peer* add_peer(int rank);
  // The largest group: what other processes call the job.
  void set_job(uint64_t id, int rank, int size) noexcept;

  // Other processes no longer find the file. Counting goes on.
  void close() noexcept { fd_.reset(); }

  // The same file with used slots only, and CLOCK_MONOTONIC now before it, as 8 bytes.
  std::string compact() const;

  const counter_layout::File& contents() const noexcept { return *file_; }
  bool is_shared() const noexcept { return fd_.valid(); }

 private:
  friend class GroupCounters;
  CounterFile(Fd fd, Mapping mapping, std::span<const std::string_view> kinds);

  Fd fd_;
  Mapping mapping_;
  counter_layout::File* file_;
  std::mutex mutex_;  // taken to find or free a slot
  uint64_t serial_ = 0;
  size_t peers_ = 0;
};

// Counters of one group. Any thread, where nothing else is said; a few nanoseconds each.
class GroupCounters {
 public:
  // One call: its kind, and the larger of its input and output.
  struct Call {
    uint8_t kind = 0;
    uint64_t bytes = 0;
  };

  // `slot`: null to count nothing. Use CounterFile::add().
  GroupCounters(std::shared_ptr<CounterFile> file, counter_layout::Group* slot)
      : file_(std::move(file)), slot_(slot) {}
  // Frees the slot, but not in a child of fork(), which shares it with its parent.
  ~GroupCounters();
  GroupCounters(const GroupCounters&) = delete;
  GroupCounters& operator=(const GroupCounters&) = delete;

  // The program has made a call. Collectives and messages are numbered apart.
  void made_collective(uint64_t number, uint8_t kind) noexcept;
  // `peer`: rank in the group; negative: any.
  void made_message(uint64_t number, uint8_t kind, int peer) noexcept;
  // Calls that ended at once. over() and finished(): one thread at a time, for all groups.
  void over(std::span<const Call> calls, std::chrono::nanoseconds duration) noexcept;
  // Calls that go on; finished() must follow once.
  void launched() noexcept;
  void finished(std::span<const Call> calls, std::chrono::nanoseconds duration,
                bool failed) noexcept;
  // A call was refused, because the group has failed.
  void refused() noexcept;

 private:
  const std::shared_ptr<CounterFile> file_;
  counter_layout::Group* const slot_;
};

}  // namespace hccl_like
