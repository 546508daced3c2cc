#pragma once
// Host memory that other processes of this user can map, without a name that could be left behind.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/fd.h"
#include "core/memory/mapping.h"

namespace hccl_like {

// What another process needs to open a SharedMemory. Plain bytes, good while the process that made
// it keeps it.
struct SharedMemoryToken {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> nonce{};  // only who was given the token knows it; different each time
};

class SharedMemory {
 public:
  SharedMemory() = default;
  // Zeros, in whole pages, all there: touching them cannot fail later, nor does it take the time of
  // a first touch. Throws kSystem.
  static SharedMemory create(size_t bytes);
  // Maps what `token` speaks of, through the other process's entry in /proc. It is checked first to
  // be a sealed memory file of this user, of the size and with the nonce in the token. Throws
  // kSystem if this host keeps it from us, kPeerLost if it is something else by now.
  static SharedMemory open(const SharedMemoryToken& token);

  SharedMemory(SharedMemory&&) noexcept = default;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  // Peers that have it open keep it.
  ~SharedMemory();

  std::byte* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }
  // Only of memory that this process created.
  const SharedMemoryToken& token() const { return token_; }
  // Gives the pages back to the system, also if peers still map them: all of it is zeros then. Only
  // of memory that this process created.
  void discard() noexcept;

  // Which memory that this process created holds all of [at, at + bytes), and where in it that
  // begins. Any thread. A few nanoseconds for most addresses that lie in none.
  struct Place {
    SharedMemoryToken token;
    uint64_t offset = 0;
  };
  static std::optional<Place> find(const void* at, size_t bytes);
  // Whether this process created the memory and still has it. Any thread.
  static bool exists(const SharedMemoryToken& token);

 private:
  SharedMemory(Fd file, const SharedMemoryToken& token, Mapping mapping);

  Fd file_;  // only of memory that this process created
  SharedMemoryToken token_;
  Mapping mapping_;
};

}  // namespace hccl_like
