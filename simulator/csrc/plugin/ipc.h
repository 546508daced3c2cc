#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "memory/arena.h"

namespace torch_sim {

// The data that a process sends to a peer on the same host so that the peer can map one of its
// arenas.
struct ArenaToken {
  uint64_t magic = ArenaTrailer::kMagic;
  int64_t process = 0;
  int64_t descriptor = 0;
  uint64_t bytes = 0;
  Nonce nonce{};
};

ArenaToken export_arena(const Arena& arena);

// The host keeps the peer's memory from us.
struct PeerUnreachable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Mapping {
  void* at = nullptr;
  size_t bytes = 0;
};

// Maps a peer's arena for reading and writing, through the peer's entry in /proc: that works
// between processes of the same user, related or not, and leaves no name behind. Checked before
// anything is mapped: it is a sealed memory file of this user, of the size in the token, with the
// token's nonce inside. Throws PeerUnreachable when the host does not let us look at the peer,
// std::invalid_argument when what is found there is not the arena the token speaks of.
Mapping open_arena(const ArenaToken& token);
void close_arena(Mapping mapping);

// The file of a peer's arena, checked in the same way and nowhere mapped yet.
Descriptor open_arena_file(const ArenaToken& token);

}  // namespace torch_sim
