#pragma once
// An input in several regions, such as a list of tensors, that local peers map.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule/layout.h"
#include "device/device.h"

namespace hccl_like {

class SharedRegions {
 public:
  // Most distinct allocations; they must fit beside the call slot (Handles).
  static constexpr size_t kMostHandles = 11;

  struct Shared {
    Region region;        // address in this process
    uint32_t handle = 0;  // index in handles()
    uint64_t offset = 0;  // in the memory of that handle
  };

  // `region` is not empty and begins where `range` does. Returns false and adds nothing beyond
  // kMostHandles allocations.
  bool add(Region region, const ExportedRange& range);

  std::span<const Shared> regions() const { return regions_; }
  std::span<const hcd_ipc_handle> handles() const { return handles_; }

 private:
  std::vector<Shared> regions_;
  std::vector<hcd_ipc_handle> handles_;
};

}  // namespace hccl_like
