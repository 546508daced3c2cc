#pragma once
// How the ranks of a large call agree whose memory they use where it is: each offers what peers can
// map, each maps what the others offer, and what one of them cannot map is used by none.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/same_host/block_plan.h"
#include "collectives/same_host/known_memory.h"

namespace hccl_like {

// Of one call, and reused. Used by one thread at a time.
class MemoryAgreement {
 public:
  // `plan` has its staging buffer, and is borrowed until end().
  void begin(BlockPlan& plan);
  // The mappings stay for as long as their peers' memory is known (PeerMemory).
  void end();

  bool shares_input() const { return call().shared_input || input_handles_ > 0; }
  bool shares() const { return shares_input() || call().shared_output; }
  // Adds what peers need to find this rank's memory to what it shows.
  void offer(Offer& offer);
  // What another rank has shown, and the sizes between it and this one.
  void read(int rank, const Offer& offer, const ChunkSizes& sizes);

  // After all was read: whether a rank offers anything.
  bool any() const;
  // What the group has agreed about the same offers before; it is mapped again if need be. Nothing
  // if there is no such agreement.
  std::optional<uint64_t> known();
  // Maps what is offered, and tells what of it this rank can use: StagingBuffer::kInputs, kOutputs.
  uint64_t map_all();
  // What every rank can use: from here on the plan says so, and the group knows it.
  void conclude(uint64_t accepted);
  void settle(uint64_t accepted);

  // Another rank's memory could not be mapped again. The call will not be finished.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  using Mapping = PeerMemory::Mapping;
  struct Place {
    size_t handle = 0;
    InputPlaces::Place at;
  };
  // What another rank has told.
  struct Told {
    uint64_t input_offset = 0, output_offset = 0;  // in its mappings
    uint32_t input_handles = 0;                    // of an input that is several pieces, else 0
    std::vector<Place> places;                     // of that, in what the handles name
  };
  struct Mappings {
    std::vector<Mapping> input;
    Mapping output;
  };

  const Call& call() const { return *plan_->call->call; }
  std::span<const hcd_ipc_handle> own_handles() const;
  uint32_t tell_places();
  uint64_t name_input(std::span<const hcd_ipc_handle> handles);
  bool holds_known(const KnownMemory::Agreement& agreement);
  uint64_t map(int rank);
  Mapping open(int rank, const hcd_ipc_handle& handle, uint64_t name);
  bool place_input(int rank, std::span<const Mapping> mappings);
  bool place_output(int rank, const Mapping& mapping);

  BlockPlan* plan_ = nullptr;
  std::vector<Told> told_;           // by rank
  std::vector<MemoryOffer> offers_;  // by rank
  std::vector<Mappings> mappings_;   // by rank, from map_all() to conclude()
  std::vector<Mapping> held_;        // of others' memory, of an agreement that was known
  std::shared_ptr<const KnownMemory::Agreement> agreement_;
  uint32_t input_handles_ =
      0;  // of this rank's input, if that is several pieces and all of it is told
  Exports::Last last_input_, last_output_;
  std::optional<Error> failure_;
};

}  // namespace hccl_like
