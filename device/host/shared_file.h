#pragma once
// Shared memory that somebody else in this process made: a file that is mapped as a whole, of which
// we know the descriptor.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/memory/mapping.h"

namespace hccl_like {

// What another process needs to map it. Plain bytes, good while the descriptor is open. Files that
// are alive at the same time differ in it, and so do, as memory files are numbered, files that
// follow one another.
struct SharedFileToken {
  int64_t process = 0;
  int64_t descriptor = -1;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;

  // Nothing if it is no regular file, or is empty. Two system calls.
  static std::optional<SharedFileToken> of(int descriptor);
  // Whether this process still has the file open under the descriptor.
  bool is_open() const;
};

// Maps it for reading and writing. Throws kSystem if this host keeps it from us, kPeerLost if the
// descriptor is another file by now or the file has been cut off. Nothing keeps its owner from
// cutting it off later.
Mapping open_shared_file(const SharedFileToken& token);

}  // namespace hccl_like
