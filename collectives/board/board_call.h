#pragma once
// How a small call runs on a board: each rank shows what others need of its input, then takes from
// theirs what it needs.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/call/call.h"
#include "core/machine/backoff.h"

namespace hccl_like {

class ThreadPool;
class KnownMemory;
class PeerMemory;

// The bytes that a rank would show of a call, at most; nothing if the call is not one for a board:
// too large, or not equally large on all ranks. All ranks of a call get the same answer.
std::optional<size_t> board_bytes(const Call& call, int ranks, Chunks chunks);

// What large calls of a communicator share. Borrowed.
struct SameHostResources {
  int cores = 0;  // of the host; 0: enough
  PeerMemory* peer_memory = nullptr;
  KnownMemory* known_memory = nullptr;
  ThreadPool* thread_pool = nullptr;
};

// One rank's side of one call. All of it is borrowed.
struct BoardCall {
  Board* board = nullptr;
  const Call* call = nullptr;
  const Plan* plan = nullptr;
  // Those of `call`, or what they have been moved to.
  const Layout* input = nullptr;
  const Layout* output = nullptr;
  const SameHostResources* resources = nullptr;
  uint32_t number = 0;
  size_t bytes = 0;  // the payload, for error messages

  uint64_t fingerprint() const { return plan->fingerprint; }
  // Shows the call and this rank's input, as Board::show() does. The line must be writable. The
  // input is free afterwards.
  void show() const;
  // Only that the call is made: its data goes another way.
  void show_fingerprint() const { board->show(number, fingerprint(), bytes); }

  // Writes the output. The lines of all ranks must be there and agree: also a root that needs
  // nothing from them has to know that they took the same root.
  void finish() const;

 private:
  const std::byte* shown_by(int rank, size_t chunk_bytes) const;
  void combine(int chunk) const;
};

// What a rank shows that does not fit to this rank's call.
struct BoardMismatch {
  int rank = 0;
  uint64_t fingerprint = 0;
  size_t bytes = 0;
  std::optional<size_t> expected;  // what this rank expects of it, if it is not the whole call
};

// Looks for the lines of all ranks, with backoff a little longer, and wakes those who sleep. False
// if one is missing still or of another call.
bool others_are_there(const BoardCall& call, Backoff& backoff, bool may_wait);

// Follows the lines of one call until all were seen.
class BoardWatch {
 public:
  void begin(const BoardCall& call);
  // True if a line was seen that was not there before.
  bool look(const BoardCall& call);
  bool complete() const { return missing_.empty(); }
  const std::vector<int>& missing() const { return missing_; }
  const std::optional<BoardMismatch>& mismatch() const { return mismatch_; }

 private:
  std::vector<int> missing_;
  std::optional<BoardMismatch> mismatch_;
};

}  // namespace hccl_like
