#pragma once
// Which memory of its ranks a group has found that all of them can map: what was agreed once need not be asked again.
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "collectives/direct/roles.h"
#include "transport/peer_memory.h"

namespace hccl_like {

// Stands for a handle where the handle itself is not needed. Handles hold random numbers, so no two marks are alike.
using HandleMark = std::array<uint64_t, 2>;
HandleMark mark_of(const hcd_ipc_handle& handle);
// Of several in this order, at least one.
HandleMark mark_of(std::span<const hcd_ipc_handle> handles);

// What one rank offers in one call.
struct MemoryOffer {
  HandleMark input{}, output{};  // zeros: nothing
  bool has_input() const { return input != HandleMark{}; }
  bool has_output() const { return output != HandleMark{}; }
  bool operator==(const MemoryOffer&) const = default;
};

// Any thread. Ranks may forget at different times: one that remembers tells the others what was agreed all the same.
class KnownMemory {
 public:
  struct Agreement {
    std::vector<MemoryOffer> offers;  // by rank
    uint64_t accepted = 0;            // what all ranks could map: Lane::kInputs, Lane::kOutputs
    // By rank; null or empty where there is none. Held so that it stays mapped.
    std::vector<std::vector<std::shared_ptr<const ImportedRange>>> inputs;
    std::vector<std::shared_ptr<const ImportedRange>> outputs;
  };

  // Of so many the oldest are forgotten: an allocator has some tens of pieces, and a loop names pairs of them.
  static constexpr size_t kMost = 64;

  // Null if the group has not agreed about these offers, or has forgotten.
  std::shared_ptr<const Agreement> find(std::span<const MemoryOffer> offers) const;
  void remember(std::shared_ptr<const Agreement> agreement);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Agreement>> agreements_;  // by what is offered
  std::vector<uint64_t> order_;  // oldest first; a deque would hold half a KiB while empty
};

}  // namespace hccl_like
