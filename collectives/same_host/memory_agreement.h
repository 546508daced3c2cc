#pragma once
// Agreement of the ranks of a large call about memory to access in place: each rank offers memory
// and maps its peers' offers; memory that some rank cannot map is used by none.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/same_host/block_plan.h"
#include "collectives/same_host/known_memory.h"

namespace hccl_like {

// One call at a time, reusable. One thread at a time.
class MemoryAgreement {
 public:
  // `plan` must have its staging buffer and is borrowed until end().
  void begin(BlockPlan& plan);
  // Keeps the mappings while the peers' memory is known (PeerMemory).
  void end();

  bool shares_input() const { return call().shared_input || input_handles_ > 0; }
  bool shares() const { return shares_input() || call().shared_output; }
  // Adds the location of this rank's memory to its offer.
  void offer(Offer& offer);
  // Reads another rank's offer and the sizes between it and this rank.
  void read(int rank, const Offer& offer, const ChunkSizes& sizes);

  // After all read() calls: whether any rank offers memory.
  bool any() const;
  // The group's earlier agreement about the same offers, mapped again if needed; or nullopt.
  std::optional<uint64_t> known();
  // Maps all offers. Returns what this rank can use: StagingBuffer::kInputs, kOutputs.
  uint64_t map_all();
  // Stores the memory that every rank can use in the plan and in the group's known memory.
  void conclude(uint64_t accepted);
  void settle(uint64_t accepted);

  // Another rank's memory could not be mapped again; the call cannot be finished.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  using Mapping = PeerMemory::Mapping;
  struct Place {
    size_t handle = 0;
    InputPlaces::Place at;
  };
  struct Told {
    uint64_t input_offset = 0, output_offset = 0;  // in its mappings
    uint32_t input_handles = 0;                    // of an input in several regions, else 0
    std::vector<Place> places;                     // of that input, in the handles' memory
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
  std::vector<Mapping> held_;        // peers' memory of a known agreement
  std::shared_ptr<const KnownMemory::Agreement> agreement_;
  // Of this rank's input, if it has several regions that all fit; else 0.
  uint32_t input_handles_ = 0;
  Exports::Last last_input_, last_output_;
  std::optional<Error> failure_;
};

}  // namespace hccl_like
