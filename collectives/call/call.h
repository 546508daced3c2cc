#pragma once
// One call of a collective as a value: what a rank asks for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "collectives/call/plan.h"
#include "collectives/call/shared_regions.h"
#include "collectives/schedule/collective.h"
#include "collectives/schedule/layout.h"
#include "core/base/types.h"
#include "device/device.h"
#include "transport/message/memory_owner.h"

namespace hccl_like {

// What one rank asks for. The memory behind the layouts must stay valid, and be left alone, until
// the operation is done.
//
// Layouts by collective (n ranks, this rank r; chunk numbers are ranks):
//   all_reduce, broadcast, reduce   input and output: Layout::even(regions, 1, element); the
//   communicator re-cuts them all_gather                      input: single(r);  output: n chunks
//   reduce_scatter                  input: n chunks;   output: single(r)
//   all_to_all                      input, output: n chunks each, chunk p for / from rank p
//   gather                          input: single(r);  output at the root: n chunks, else empty
//   scatter                         input at the root: n chunks, else empty;  output: single(r)
//   send, recv                      input / output: Layout::even(regions, 1, element)
//   barrier                         none
struct Call {
  // Which lap, of how many, and the bytes that all of them carry.
  struct Lap {
    uint32_t number = 0;
    uint32_t count = 1;
    size_t bytes = 0;
    bool alike = false;  // all ranks make the same laps
  };
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;  // kPreMulSum
  // Root of a rooted collective, the other end of send and recv; kAnySource for a recv from whoever
  // comes first.
  int root = 0;
  uint32_t tag = 0;   // send and recv; < 2^31
  uint32_t site = 0;  // where the program makes the call, see Fingerprint; 0: not told
  uint64_t number =
      0;    // by which the program knows the call, from 1; 0: the communicator's number and one
  Lap lap;  // of a call whose caller makes it lap by lap
  // Chunks differ in size and only each pair of ranks knows its own (all-to-all with splits).
  bool uneven = false;
  Layout input;
  Layout output;
  // Where peers on this host find the memory, if its device lets them map it: nothing is copied on
  // the way then. Peers open it by the same device of theirs.
  const Device* device = nullptr;
  int device_index = 0;
  std::optional<ExportedRange> shared_input;    // of the whole input
  std::optional<SharedRegions> shared_regions;  // of an input that is several pieces, instead
  std::optional<ExportedRange> shared_output;   // of the whole output
  MemoryOwner output_owner{};                   // of that; see transport/message/kept_memory.h
  // The layouts are of memory that nobody on the host may touch; see
  // Communicator::use_device_memory().
  bool in_device = false;
  std::chrono::milliseconds timeout{0};  // 0: the communicator's
};

inline constexpr int kAnySource = -1;

// How much a call is about, all its laps together, for people.
inline size_t payload_bytes(const Call& call) {
  return std::max({call.input.total_bytes(), call.output.total_bytes(), call.lap.bytes});
}

// The side of a call that has a chunk for every rank, if it has one.
const Layout& chunk_side(const Call& call);
Chunks chunks_of(const Call& call, int ranks);

}  // namespace hccl_like
