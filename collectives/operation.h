#pragma once
// One call of a collective: what was asked for, and the handle by which the caller learns how it went.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/algorithms.h"
#include "collectives/same_host/shared_regions.h"
#include "collectives/layout.h"
#include "collectives/plan.h"
#include "core/error.h"
#include "core/types.h"
#include "device/device.h"
#include "transport/memory_owner.h"

namespace hccl_like {

class Communicator;
class LargeCall;

// What one rank asks for. The memory behind the layouts must stay valid, and be left alone, until the operation is done.
//
// Layouts by collective (n ranks, this rank r; chunk numbers are ranks):
//   all_reduce, broadcast, reduce   input and output: Layout::even(regions, 1, element); the communicator re-cuts them
//   all_gather                      input: single(r);  output: n chunks
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
  // Root of a rooted collective, the other end of send and recv; kAnySource for a recv from whoever comes first.
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
  // Where peers on this host find the memory, if its device lets them map it: nothing is copied on the way then. Peers open it by the
  // same device of theirs.
  const Device* device = nullptr;
  int device_index = 0;
  std::optional<ExportedRange> shared_input;    // of the whole input
  std::optional<SharedRegions> shared_regions;  // of an input that is several pieces, instead
  std::optional<ExportedRange> shared_output;   // of the whole output
  MemoryOwner output_owner{};                   // of that; see transport/kept_memory.h
  // The layouts are of memory that nobody on the host may touch; see Communicator::use_device_memory().
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

// Shared by the caller and the engine.
class Operation {
 public:
  Operation(std::shared_ptr<Communicator> communicator, Call call, Plan plan, uint32_t sequence);
  ~Operation();

  // Any thread. Everything that the operation wrote is visible once this is true.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Null while running and after success. Any thread, once done().
  const Error* error() const noexcept { return done() && error_ ? &*error_ : nullptr; }
  // The rank that a recv heard from, once done().
  int source() const noexcept { return source_; }
  uint32_t sequence() const noexcept { return sequence_; }
  // Once done(). An operation that failed before its first step began when it ended.
  std::chrono::steady_clock::time_point started() const noexcept {
    return started_ == std::chrono::steady_clock::time_point() ? finished_ : started_;
  }
  std::chrono::steady_clock::time_point finished() const noexcept { return finished_; }

  Communicator& communicator() const { return *communicator_; }
  // "all_reduce #12 (float32, sum, 4194304 bytes)", for errors and logs; of a lap "..., lap 2 of 4 through the host".
  std::string describe() const;
  // By which people know it.
  uint64_t number() const noexcept { return call_.number != 0 ? call_.number : sequence_ + 1; }

 private:
  friend class Communicator;
  friend class Engine;
  friend class Execution;

  std::string describe_whole() const;

  std::shared_ptr<Communicator> communicator_;
  Call call_;
  Plan plan_;
  uint32_t sequence_;
  std::shared_ptr<const Operation>
      begun_by_;                       // what this is a later lap of; see Communicator::prepare_lap
  bool shown_ = false;                 // on the board, by the thread that called
  std::unique_ptr<LargeCall> large_;   // begun by it
  size_t bytes_;                       // the payload, for describe(): the layouts are gone by then
  int source_ = kAnySource;
  std::optional<Error> error_;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::time_point finished_{};
  std::atomic<bool> done_{false};
};

}  // namespace hccl_like
