#pragma once
// Signal words between the ranks that share symmetric memory.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "device/host/shared_memory.h"

namespace hccl_like {

// Counts the objects of this process that hold or share symmetric memory.
class SymmetricUse {
 public:
  SymmetricUse() { count_.fetch_add(1); }
  ~SymmetricUse() { count_.fetch_sub(1); }
  SymmetricUse(const SymmetricUse&) = delete;
  SymmetricUse& operator=(const SymmetricUse&) = delete;

  static size_t count() { return count_.load(); }

 private:
  inline static std::atomic<size_t> count_{0};
};

// One word for each (receiver, channel, sender) in shared host memory. `put` waits for 0 and sets
// 1; `wait` waits for 1 and sets 0: a word holds at most one signal. The first failure of any rank
// fails every later call on all ranks. A wait for an exited process fails at once.
//
// Calls wait on a futex and never touch a device. Any thread; concurrent calls must not use the
// same word in the same direction.
class Signals {
 public:
  // Bytes of memory for `ranks` ranks.
  static size_t bytes(int ranks, int channels);
  // `memory` is zero-filled and shared by all ranks; every rank constructs a Signals over it.
  Signals(SharedMemory memory, std::string group, int rank, int ranks, int channels);

  std::optional<Error> put(int receiver, int channel, Deadline deadline);
  std::optional<Error> wait(int sender, int channel, Deadline deadline);
  // Signals every peer and waits for a signal from each. The error names all missing ranks.
  std::optional<Error> barrier(int channel, Deadline deadline);

  // The first failure of any rank.
  std::optional<Error> failure() const;

  // Declares that this rank no longer accesses its peers' memory.
  void leave();
  // True if every peer has left or exited.
  bool others_left() const;

  int channels() const { return channels_; }

 private:
  using Word = std::atomic<uint32_t>;
  enum class Outcome : uint8_t { kDone, kExpired, kGone, kFailed };
  struct Header;
  struct Member;

  Header& header() const;
  Member& member(int rank) const;
  Word& word(int receiver, int channel, int sender) const;
  // Waits until the word is `from` and sets it to `to`. `peer` must act first.
  Outcome turn(Word& word, uint32_t from, uint32_t to, int peer, Deadline deadline) const;
  bool is_gone(int rank) const;
  Error fail(Outcome outcome, const std::string& attempt, const std::vector<int>& peers);

  const SymmetricUse use_;
  SharedMemory memory_;
  const std::string group_;
  const int rank_;
  const int ranks_;
  const int channels_;
};

}  // namespace hccl_like
