#pragma once
// The words by which the ranks that share symmetric memory signal each other.
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

// One word for each (receiver, channel, sender), 0 or 1, in host memory that all ranks of one
// rendezvous map. `put` makes it 1 and first waits for it to be 0; `wait` makes it 0 and first
// waits for it to be 1. So a word holds one signal, and every order of calls that is right once is
// right for ever.
//
// The first failure of any rank is the failure of all: every later call, here and on the other
// ranks, returns it. Whoever waits for a process that has ended learns of it at once.
//
// Calls wait on a futex, never touch a device, and may come from any thread; two at a time must not
// be about the same word and direction.
class Signals {
 public:
  // How much memory `ranks` ranks need.
  static size_t bytes(int ranks, int channels);
  // `memory` was made for as many by one of the ranks, and each of them constructs one of these
  // over it.
  Signals(SharedMemory memory, std::string group, int rank, int ranks, int channels);

  std::optional<Error> put(int receiver, int channel, Deadline deadline);
  std::optional<Error> wait(int sender, int channel, Deadline deadline);
  // Signals every other rank and waits for a signal of each. The error names all the ranks that did
  // not come.
  std::optional<Error> barrier(int channel, Deadline deadline);

  // The first failure of any rank, if there was one.
  std::optional<Error> failure() const;

  // This rank will not touch the others' memory any more.
  void leave();
  // Whether that is true of all other ranks: they have left, or their processes have ended.
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
  // Waits until the word is `from` and makes it `to`. `peer` is the rank that has to do something
  // for that.
  Outcome turn(Word& word, uint32_t from, uint32_t to, int peer, Deadline deadline) const;
  bool is_gone(int rank) const;
  Error fail(Outcome outcome, const std::string& attempt, const std::vector<int>& peers);

  SharedMemory memory_;
  const std::string group_;
  const int rank_;
  const int ranks_;
  const int channels_;
};

}  // namespace hccl_like
