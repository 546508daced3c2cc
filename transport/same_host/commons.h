#pragma once
// Memory that one process shows to all its peers on the host: it writes, they read.
//
// Where a message to n peers is written n times, what lies here is written once. There are small
// areas, one for each communicator that wants one, and large staging buffers, one for each call
// whose payload passes by. What lies in them is their users' business (collectives/board,
// collectives/direct).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/fd.h"
#include "core/memory/mapping.h"
#include "transport/same_host/exports.h"
#include "transport/same_host/guarded_text.h"
#include "transport/same_host/life.h"
#include "transport/same_host/shelf.h"

namespace hccl_like {

// What a process tells all its peers on the host, whether they are connected or not. Zeros at
// first.
struct CommonsNotes {
  static constexpr uint32_t kGivenUp = 4096;
  static constexpr uint32_t kReasons = 16;

  char owner[64];                                 // the id of the process, from its record
  uint64_t identity = 0;                          // random: no other process has it
  std::atomic<uint32_t> asleep{0};                // it sleeps, or is about to: ring its bell
  std::atomic<uint32_t> leaving{0};               // it ended in order
  std::atomic<uint32_t> given_up{0};              // how many communicators it gave up
  std::atomic<uint64_t> communicators[kGivenUp];  // the last of them, by number modulo kGivenUp
  GuardedText reasons[kReasons];                  // of the very last; the key: their number + 1
  Exports::Words exports{};                       // of memory that peers may map
};

// This process's own. Any thread.
class Commons {
 public:
  static constexpr size_t kAreaBytes = 16 << 10;
  static constexpr size_t kAreaHeadBytes = 4 << 10;  // all that most communicators use of it
  static constexpr uint32_t kAreas = 4096;
  static constexpr size_t kStagingBytes = 8192 + (2 << 20);
  static constexpr uint32_t kStagingBuffers = 128;
  static constexpr size_t kStagingBegin = kAreaBytes * kAreas;
  static constexpr size_t kLifeBegin = kStagingBegin + kStagingBytes * kStagingBuffers;
  static constexpr size_t kNotesBegin = kLifeBegin + 4096;
  static constexpr size_t kBytes = kNotesBegin + ((sizeof(CommonsNotes) + 4095) / 4096) * 4096;

  // `owner`: the id of the process. Throws kSystem.
  explicit Commons(std::string_view owner = {});

  // For a peer; valid as long as this object.
  int fd() const noexcept { return memory_.get(); }

  Shelf& areas() { return areas_; }
  Shelf& staging_buffers() { return staging_buffers_; }
  Life& life() { return *life_; }
  Exports& exports() { return *exports_; }

  // Whether whoever drives sleeps; told before it looks for the last time.
  void set_asleep(bool asleep);
  // Nothing more will come from this process.
  void leave() { notes_->leaving.store(1, std::memory_order_release); }
  // False if the last communicator given up was this one. By one thread at a time.
  bool give_up(uint64_t communicator, std::string_view reason);

 private:
  Fd memory_;
  Mapping mapping_;
  CommonsNotes* notes_;
  Shelf areas_;
  Shelf staging_buffers_;
  std::optional<Life> life_;
  std::optional<Exports> exports_;
};

// A peer's, mapped for reading. A copy keeps the same mapping. Any thread.
class PeerCommons {
 public:
  // Takes the descriptor from a peer. Throws kPeerLost if it is not what a Commons makes, kSystem
  // if it cannot be mapped.
  explicit PeerCommons(Fd memory);

  // `piece` is less than kAreas, kStagingBuffers.
  const std::byte* area(uint32_t piece) const {
    return base_ + size_t{piece} * Commons::kAreaBytes;
  }
  const std::byte* staging_buffer(uint32_t piece) const {
    return base_ + Commons::kStagingBegin + size_t{piece} * Commons::kStagingBytes;
  }
  // Whether the peer's process died, at once whatever its size; one that ended in order has not.
  bool owner_died() const;

  bool belongs_to(std::string_view owner) const;
  uint64_t identity() const { return notes().identity; }
  // Whether the owner still has the memory that it has given this name.
  bool exports(uint64_t name) const {
    return Exports::holds(notes().exports, name) && !leaving() && !owner_died();
  }
  bool asleep() const { return notes().asleep.load(std::memory_order_relaxed) != 0; }
  bool leaving() const { return notes().leaving.load(std::memory_order_acquire) != 0; }
  uint32_t given_up() const { return notes().given_up.load(std::memory_order_acquire); }
  // The number-th communicator that the peer gave up, or a later one in its place.
  uint64_t given_up(uint32_t number) const;
  // Why; a general word if that was overwritten since.
  std::string reason(uint32_t number) const;

 private:
  const CommonsNotes& notes() const {
    return *reinterpret_cast<const CommonsNotes*>(base_ + Commons::kNotesBegin);
  }

  std::shared_ptr<const Mapping> mapping_;
  const std::byte* base_ = nullptr;  // of that
};

}  // namespace hccl_like
