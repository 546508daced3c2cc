#pragma once

#include <map>
#include <memory>
#include <vector>

#include "memory/arena.h"

namespace torch_sim {

// All arenas of one device, and those of peers that are mapped for it. Hands out segments (whole
// multiples of kSegment) and takes them back; grows by arenas, and gives wholly unused arenas back
// to the host when asked to. Not thread-safe: the allocator's lock covers it.
class ArenaPool {
 public:
  static constexpr size_t kSegment = size_t{2} << 20;

  // `limit` is the device's memory in bytes.
  ArenaPool(const AddressSpace& space, int device, size_t limit);

  // `bytes` is a multiple of kSegment. Throws OutOfMemory.
  std::byte* take(size_t bytes);
  void give_back(std::byte* at, size_t bytes);

  // Maps a peer's arena into the device's addresses. It is no memory of the device: nothing is
  // taken from it, and it counts for nothing. Throws OutOfMemory if the addresses are used up.
  std::byte* add_peer(size_t bytes, Descriptor file, const Nonce& nonce);
  // Unmaps it; false if no peer's arena begins at `at`.
  bool remove_peer(std::byte* at);

  // Unmaps the arenas nobody uses. The caller has made sure that no queued work touches them.
  void trim();

  // Whether it has the device's own arena with that nonce.
  bool has(const Nonce& nonce) const;
  // The arena that holds all of [at, at + bytes), or null.
  const Arena* find(const void* at, size_t bytes) const;

  size_t limit() const { return limit_; }
  size_t reserved() const { return reserved_; }

 private:
  struct Entry {
    std::unique_ptr<Arena> arena;
    std::map<size_t, size_t> free;  // offset -> bytes, adjacent ranges always joined
  };

  static std::byte* take_from(Entry& entry, size_t bytes);
  Entry& grow(size_t bytes);
  std::byte* place(size_t bytes) const;

  const AddressSpace& space_;
  const int device_;
  const size_t limit_;
  size_t reserved_ = 0;
  std::map<std::byte*, Entry> arenas_;  // by address
};

}  // namespace torch_sim
