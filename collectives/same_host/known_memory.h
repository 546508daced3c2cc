#pragma once
// Cache of agreements about memory that all ranks of a group can map.
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/same_host/peer_memory.h"

namespace hccl_like {

// The memory that a rank offers in one call, by its process's export names (Exports).
struct MemoryOffer {
  uint64_t input = 0, output = 0;  // 0: none
  bool has_input() const { return input != 0; }
  bool has_output() const { return output != 0; }
  bool operator==(const MemoryOffer&) const = default;
};

// Any thread. Ranks may forget at different times; a rank that remembers tells the others.
class KnownMemory {
 public:
  using Mapping = std::weak_ptr<const PeerMapping>;
  struct Agreement {
    std::vector<MemoryOffer> offers;  // by rank
    uint64_t accepted = 0;            // what all ranks can map: StagingBuffer::kInputs, kOutputs
    // By rank, of accepted memory. PeerMemory may close a mapping; its next user opens it again.
    std::vector<std::vector<Mapping>> inputs;
    std::vector<std::vector<Mapping>> outputs;  // at most one each
  };

  // Above this many, the oldest are forgotten. A loop uses pairs of some tens of segments.
  static constexpr size_t kMost = 64;

  // Null if the group has no agreement about these offers, or has forgotten it.
  std::shared_ptr<const Agreement> find(std::span<const MemoryOffer> offers) const;
  // Replaces an earlier agreement about the same offers.
  void remember(std::shared_ptr<const Agreement> agreement);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Agreement>>
      agreements_;               // by hash of the offers
  std::vector<uint64_t> order_;  // oldest first; an empty deque would take half a KiB
};

}  // namespace hccl_like
