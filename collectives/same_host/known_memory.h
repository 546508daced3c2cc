#pragma once
// Which memory of its ranks a group has found that all of them can map: what was agreed once need
// not be asked again.
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/same_host/peer_memory.h"

namespace hccl_like {

// What one rank offers in one call, by the names that its process has given (Exports).
struct MemoryOffer {
  uint64_t input = 0, output = 0;  // 0: nothing
  bool has_input() const { return input != 0; }
  bool has_output() const { return output != 0; }
  bool operator==(const MemoryOffer&) const = default;
};

// Any thread. Ranks may forget at different times: one that remembers tells the others what was
// agreed all the same.
class KnownMemory {
 public:
  using Mapping = std::weak_ptr<const PeerMapping>;
  struct Agreement {
    std::vector<MemoryOffer> offers;  // by rank
    uint64_t accepted = 0;            // what all ranks could map: Lane::kInputs, Lane::kOutputs
    // By rank, of what was accepted. PeerMemory may close a mapping; whoever needs it again opens
    // it again.
    std::vector<std::vector<Mapping>> inputs;
    std::vector<std::vector<Mapping>> outputs;  // one at most
  };

  // Of so many the oldest are forgotten: an allocator has some tens of pieces, and a loop names
  // pairs of them.
  static constexpr size_t kMost = 64;

  // Null if the group has not agreed about these offers, or has forgotten.
  std::shared_ptr<const Agreement> find(std::span<const MemoryOffer> offers) const;
  // In place of an earlier one about the same offers.
  void remember(std::shared_ptr<const Agreement> agreement);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Agreement>> agreements_;  // by what is offered
  std::vector<uint64_t> order_;  // oldest first; a deque would hold half a KiB while empty
};

}  // namespace hccl_like
