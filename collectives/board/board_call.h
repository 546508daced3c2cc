#pragma once
// Small calls on a board: each rank publishes the input that others need, then reads theirs.
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

// Most bytes that a rank shows for the call; nullopt if the call is too large for a board or its
// chunks are not equal. Same result on all ranks.
std::optional<size_t> board_bytes(const Call& call, int ranks, Chunks chunks);

// Resources that all large calls of a communicator share. Borrowed.
struct SameHostResources {
  int cores = 0;  // of the host; 0: assume enough
  PeerMemory* peer_memory = nullptr;
  KnownMemory* known_memory = nullptr;
  ThreadPool* thread_pool = nullptr;
};

// One rank's side of one call. All members are borrowed.
struct BoardCall {
  Board* board = nullptr;
  const Call* call = nullptr;
  const Plan* plan = nullptr;
  // The layouts of `call`, or their replacements.
  const Layout* input = nullptr;
  const Layout* output = nullptr;
  const SameHostResources* resources = nullptr;
  uint32_t number = 0;
  size_t bytes = 0;  // payload, for error messages

  uint64_t fingerprint() const { return plan->fingerprint; }
  // Publishes the call with this rank's input, as Board::show() does. The slot must be writable.
  // The input may be reused afterwards.
  void show() const;
  // Publishes only the call; its data takes another path.
  void show_fingerprint() const { board->show(number, fingerprint(), bytes); }

  // Writes the output. The slots of all ranks must be published and agree, even for a root that
  // needs no data: all ranks must have named the same root.
  void finish() const;

 private:
  const std::byte* shown_by(int rank, size_t chunk_bytes) const;
  void combine(int chunk) const;
};

// A peer's slot that does not match this rank's call.
struct BoardMismatch {
  int rank = 0;
  uint64_t fingerprint = 0;
  size_t bytes = 0;
  std::optional<size_t> expected;  // what this rank expects, if not the whole call
};

// Polls the slots of all ranks, with backoff if `may_wait`, and wakes sleeping ranks. False if a
// slot is missing or of another call.
bool others_are_there(const BoardCall& call, Backoff& backoff, bool may_wait);

class BoardWatch {
 public:
  void begin(const BoardCall& call);
  // True if a new slot or a mismatch was seen.
  bool look(const BoardCall& call);
  bool complete() const { return missing_.empty(); }
  const std::vector<int>& missing() const { return missing_; }
  const std::optional<BoardMismatch>& mismatch() const { return mismatch_; }

 private:
  std::vector<int> missing_;
  std::optional<BoardMismatch> mismatch_;
};

}  // namespace hccl_like
