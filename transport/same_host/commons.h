#pragma once
// Memory that one process writes and all its peers on the host read: data for n peers are written
// once. It has small areas (one per communicator) and large staging buffers (one per call). Their
// users define the contents (collectives/board, collectives/direct).
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

// Notices to all peers on the host, connected or not. Initially zero.
struct CommonsNotes {
  static constexpr uint32_t kGivenUp = 4096;
  static constexpr uint32_t kReasons = 16;

  char owner[64];                                 // id of the process, from its record
  uint64_t identity = 0;                          // random, unique
  std::atomic<uint32_t> asleep{0};                // the driver sleeps or is about to: ring the bell
  std::atomic<uint32_t> leaving{0};               // orderly exit
  std::atomic<uint32_t> given_up{0};              // number of aborted communicators
  std::atomic<uint64_t> communicators[kGivenUp];  // the last ones, by number modulo kGivenUp
  GuardedText reasons[kReasons];                  // of the last aborts; key: number + 1
  Exports::Words exports{};                       // of exported memory
};

// This process's own Commons. Any thread.
class Commons {
 public:
  static constexpr size_t kAreaBytes = 68 << 10;
  static constexpr size_t kAreaHeadBytes = 4 << 10;  // the part that most communicators use
  static constexpr uint32_t kAreas = 4096;
  static constexpr size_t kStagingBytes = 8192 + (2 << 20);
  static constexpr uint32_t kStagingBuffers = 128;
  static constexpr size_t kStagingBegin = kAreaBytes * kAreas;
  static constexpr size_t kLifeBegin = kStagingBegin + kStagingBytes * kStagingBuffers;
  static constexpr size_t kNotesBegin = kLifeBegin + 4096;
  static constexpr size_t kBytes = kNotesBegin + ((sizeof(CommonsNotes) + 4095) / 4096) * 4096;

  // `owner`: the id of the process. Throws kSystem.
  explicit Commons(std::string_view owner = {});

  // For a peer; valid during the lifetime of this object.
  int fd() const noexcept { return memory_.get(); }

  Shelf& areas() { return areas_; }
  Shelf& staging_buffers() { return staging_buffers_; }
  Life& life() { return *life_; }
  Exports& exports() { return *exports_; }

  // Whether the driver sleeps. Must be set before the driver's last check for work.
  void set_asleep(bool asleep);
  void leave() { notes_->leaving.store(1, std::memory_order_release); }
  // Publishes an abort. False if the last abort was of the same communicator. One thread at a time.
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

// A peer's Commons, mapped read-only. Copies share the mapping. Any thread.
class PeerCommons {
 public:
  // Takes a peer's descriptor. Throws kPeerLost if it is no Commons, kSystem if mapping fails.
  explicit PeerCommons(Fd memory);

  // Requires piece < kAreas or kStagingBuffers.
  const std::byte* area(uint32_t piece) const {
    return base_ + size_t{piece} * Commons::kAreaBytes;
  }
  const std::byte* staging_buffer(uint32_t piece) const {
    return base_ + Commons::kStagingBegin + size_t{piece} * Commons::kStagingBytes;
  }
  // Whether the peer's process died, detected at once. False after an orderly exit.
  bool owner_died() const;

  bool belongs_to(std::string_view owner) const;
  uint64_t identity() const { return notes().identity; }
  // Whether the owner still has the memory with this name.
  bool exports(uint64_t name) const {
    return Exports::holds(notes().exports, name) && !leaving() && !owner_died();
  }
  bool asleep() const { return notes().asleep.load(std::memory_order_relaxed) != 0; }
  bool leaving() const { return notes().leaving.load(std::memory_order_acquire) != 0; }
  uint32_t given_up() const { return notes().given_up.load(std::memory_order_acquire); }
  // The number-th aborted communicator, or a later one that overwrote it.
  uint64_t given_up(uint32_t number) const;
  // The reason, or a generic text if the reason was overwritten.
  std::string reason(uint32_t number) const;

 private:
  const CommonsNotes& notes() const {
    return *reinterpret_cast<const CommonsNotes*>(base_ + Commons::kNotesBegin);
  }

  std::shared_ptr<const Mapping> mapping_;
  const std::byte* base_ = nullptr;  // of the mapping
};

}  // namespace hccl_like
