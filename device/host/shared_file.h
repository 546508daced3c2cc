#pragma once
// Shared memory made by other code of this process: a mapped file, known by its descriptor.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/memory/mapping.h"

namespace hccl_like {

// The data another process needs to map the file. Plain bytes, valid while the descriptor is open.
// Differs between files alive at the same time and between successive memory files.
struct SharedFileToken {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;

  // Nothing for an empty or non-regular file. Two system calls.
  static std::optional<SharedFileToken> of(int descriptor);
  // True if this process still has the file open under the descriptor.
  bool is_open() const;
};

// Maps the file for reading and writing. Throws kSystem if this host denies access, kPeerLost if
// the descriptor is another file by now or the file was truncated. The owner may still truncate it
// later.
Mapping open_shared_file(const SharedFileToken& token);

}  // namespace hccl_like
