#pragma once
// One call of a collective as a value.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/call/device_call.h"
#include "collectives/call/plan.h"
#include "collectives/call/shared_regions.h"
#include "collectives/schedule/collective.h"
#include "collectives/schedule/layout.h"
#include "core/base/types.h"
#include "device/device.h"
#include "transport/message/memory_owner.h"

namespace hccl_like {

// The caller must keep the memory of the layouts valid and unmodified until the operation is done.
//
// Layouts by collective, for rank r of n ranks; chunk numbers are ranks:
//   all_reduce, broadcast, reduce  input, output: even(regions, 1, element); communicator re-cuts
//   all_gather                     input: single(r);  output: n chunks
//   reduce_scatter                 input: n chunks;   output: single(r)
//   all_to_all                     input, output: n chunks, chunk p for / from rank p
//   gather                         input: single(r);  output at the root: n chunks, else empty
//   scatter                        input at the root: n chunks, else empty;  output: single(r)
//   send, recv                     input / output: even(regions, 1, element)
struct Call {
  // Slice `number` of `count`; `bytes`: all slices together.
  struct Slice {
    uint32_t number = 0;
    uint32_t count = 1;
    size_t bytes = 0;
    bool alike = false;  // all ranks make the same slices
  };
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;  // kPreMulSum
  // Root of a rooted collective, or peer of a send or recv; kAnySource: recv from any rank.
  int root = 0;
  uint32_t tag = 0;   // send and recv; < 2^31
  uint32_t site = 0;  // call site in the program, see Fingerprint; 0: unknown
  // The program's number for the call, from 1; 0: the communicator's number + 1.
  uint64_t number = 0;
  Slice slice;  // if the caller makes the call slice by slice
  // Chunk sizes differ, and each pair of ranks knows only its own (all-to-all with splits).
  bool uneven = false;
  Layout input;
  Layout output;
  // Ranges that local peers map, if the device allows it, to avoid staging. Peers open them with
  // their own instance of the same device.
  const Device* device = nullptr;
  int device_index = 0;
  std::optional<ExportedRange> shared_input;    // the whole input
  std::optional<SharedRegions> shared_regions;  // instead, if the input has several regions
  std::optional<ExportedRange> shared_output;   // the whole output
  MemoryOwner output_owner{};  // owner of the output; see transport/message/kept_memory.h
  // The call that this exchange precedes (Communicator::prepare_exchange); null for a user's call.
  std::shared_ptr<const Call> precedes;
  // The program's call that this one is a part of, with the same number: of a call in phases
  // (process_group/issue/host_phases.h).
  std::optional<Collective> part_of;
  // Set: the engine watches the call and moves nothing. Of the layouts, only the sizes matter.
  std::shared_ptr<const DeviceCall> by_device;
  // The host must not access the layouts' memory; see Communicator::use_device_memory().
  bool in_device = false;
  std::chrono::milliseconds timeout{0};  // 0: the communicator's
};

inline constexpr int kAnySource = -1;

// The call that users know.
inline const Call& named(const Call& call) { return call.precedes ? *call.precedes : call; }

// Payload of a call, all its slices together; for error messages.
inline size_t payload_bytes(const Call& call) {
  return std::max({call.input.total_bytes(), call.output.total_bytes(), call.slice.bytes});
}

// The side with a chunk for every rank, if there is one.
const Layout& chunk_side(const Call& call);
Chunks chunks_of(const Call& call, int ranks);

}  // namespace hccl_like
