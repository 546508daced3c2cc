#pragma once
// Host memory that other processes of this user can map, without a name that could be left behind.
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/fd.h"
#include "core/mapping.h"

namespace hccl_like {

// What another process needs to open a SharedMemory. Plain bytes, good while the process that made it keeps it.
struct SharedMemoryToken {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> nonce{};  // only who was given the token knows it
};

class SharedMemory {
 public:
  SharedMemory() = default;
  // Zeros, in whole pages, all reserved: touching them cannot fail later. Throws kSystem.
  static SharedMemory create(size_t bytes);
  // Maps what `token` speaks of, through the other process's entry in /proc. It is checked first to be a sealed memory
  // file of this user, of the size and with the nonce in the token. Throws kSystem if this host keeps it from us,
  // kPeerLost if it is something else by now.
  static SharedMemory open(const SharedMemoryToken& token);

  std::byte* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }
  // Only of memory that this process created.
  const SharedMemoryToken& token() const { return token_; }

 private:
  SharedMemory(Fd file, const SharedMemoryToken& token);

  Fd file_;
  SharedMemoryToken token_;
  Mapping mapping_;
};

}  // namespace hccl_like
