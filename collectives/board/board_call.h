#pragma once
// How a small call runs on a board: each rank shows what others need of its input, then takes from theirs what it needs.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/direct/known_memory.h"
#include "collectives/operation.h"
#include "core/crew.h"
#include "core/patience.h"
#include "core/write_pace.h"
#include "device/reduce/reduce.h"
#include "transport/peer_memory.h"

namespace hccl_like {

// The bytes that a rank would show of a call, at most; nothing if the call is not one for a board: too large, or not
// equally large on all ranks. All ranks of a call get the same answer.
std::optional<size_t> board_bytes(const Call& call, int ranks, Chunks chunks);

// What one rank does in one call. The layouts and the board are borrowed.
struct BoardCall {
  Board* board = nullptr;
  const Layout* input = nullptr;
  const Layout* output = nullptr;
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  int root = 0;
  Chunks chunks = Chunks::kEqual;
  Reduction reduction{};
  Scaling scaling;
  uint64_t fingerprint = 0;
  uint32_t number = 0;
  size_t bytes = 0;  // the payload, for people
  // Of memory that peers can map (Call); null if they can't.
  const ExportedRange* shared_input = nullptr;
  const SharedRegions* shared_regions = nullptr;  // of an input that is several pieces, instead
  const ExportedRange* shared_output = nullptr;
  MemoryOwner output_owner{};  // of shared_output
  const Device* device = nullptr;
  int device_index = 0;
  int cores = 0;  // of the host; 0: enough
  PeerMemory* peer_memory = nullptr;
  KnownMemory* known_memory = nullptr;
  WritePace* write_pace = nullptr;  // of lanes; null: they are written through the caches
  Crew* crew = nullptr;

  // Shows the call and this rank's input, as Board::show() does. The line must be writable. The input is free afterwards.
  void show() const;
  // Only that the call is made: its data goes another way.
  void show_fingerprint() const;

  // Writes the output. The lines of all ranks must be there and agree: also a root that needs nothing from them has to
  // know that they took the same root.
  void finish() const;
};

// What a rank shows that does not fit to this rank's call.
struct BoardMismatch {
  int rank = 0;
  uint64_t fingerprint = 0;
  size_t bytes = 0;
  std::optional<size_t> expected;  // what this rank expects of it, if it is not the whole call
};

// Looks for the lines of all ranks, with patience a little longer, and wakes those who sleep. False if one is missing still or of another
// call. `timed`: is told how long looks took that found what a rank had just written; may be null.
bool others_are_there(const BoardCall& call, Patience& patience, bool patient, WritePace* timed);

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
