#pragma once
// Anonymous host memory that other processes of this user can map.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/fd.h"
#include "core/memory/mapping.h"

namespace hccl_like {

// The data another process needs to open a SharedMemory. Plain bytes, valid while the creator keeps
// it.
struct SharedMemoryToken {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> nonce{};  // random for each memory; known only from the token
};

class SharedMemory {
 public:
  SharedMemory() = default;
  // Zeroed whole pages, allocated and touched in advance: access cannot fail. Throws kSystem.
  static SharedMemory create(size_t bytes);
  // Maps the memory of `token` through the other process's /proc entry. First checks that it is a
  // sealed memory file of this user with the token's size and nonce. Throws kSystem if this host
  // denies access, kPeerLost if the check fails.
  static SharedMemory open(const SharedMemoryToken& token);

  SharedMemory(SharedMemory&&) noexcept = default;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  // Peers' mappings stay valid.
  ~SharedMemory();

  std::byte* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }
  // Requires memory that this process created.
  const SharedMemoryToken& token() const { return token_; }
  // Returns the pages to the system, even if peers map them: reads then give zeros. Requires memory
  // that this process created.
  void discard() noexcept;

  // For memory that this process created, and that no thread writes meanwhile. Both keep the
  // addresses and the content. Both throw kSystem, without effect.
  // Ordinary memory from now on, without a descriptor: peers that map it keep the old pages.
  void make_private();
  // After make_private(): shared again, with another token.
  void share();
  bool shared() const { return file_.valid(); }

  // The memory created by this process that holds all of [at, at + bytes), and the offset in it.
  // Thread-safe. A few nanoseconds for most other addresses.
  struct Place {
    SharedMemoryToken token;
    uint64_t offset = 0;
  };
  static std::optional<Place> find(const void* at, size_t bytes);
  // True if this process created the memory and still has it. Thread-safe.
  static bool exists(const SharedMemoryToken& token);

 private:
  SharedMemory(Fd file, const SharedMemoryToken& token, Mapping mapping);

  Fd file_;  // only if created by this process
  SharedMemoryToken token_;
  Mapping mapping_;
};

}  // namespace hccl_like
