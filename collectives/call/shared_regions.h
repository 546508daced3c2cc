#pragma once
// The input of a call that lies in several places, as peers on this host find it: a list of
// tensors, most often.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule/layout.h"
#include "device/device.h"

namespace hccl_like {

class SharedRegions {
 public:
  // Of different allocations, at most: what a rank can tell beside its line on the board.
  static constexpr size_t kMostHandles = 11;

  struct Shared {
    Region region;        // as this process sees it
    uint32_t handle = 0;  // among handles()
    uint64_t offset = 0;  // in what that names
  };

  // `region` is not empty and begins where `range` does. False if that would be one allocation too
  // many; nothing is added then.
  bool add(Region region, const ExportedRange& range);

  std::span<const Shared> regions() const { return regions_; }
  std::span<const hcd_ipc_handle> handles() const { return handles_; }

 private:
  std::vector<Shared> regions_;
  std::vector<hcd_ipc_handle> handles_;
};

}  // namespace hccl_like
