#include "collectives/call/shared_regions.h"

#include <algorithm>
#include <cstring>

namespace hccl_like {

bool SharedRegions::add(Region region, const ExportedRange& range) {
  const auto same = [&](const hcd_ipc_handle& one) {
    return std::memcmp(one.bytes, range.handle.bytes, sizeof one.bytes) == 0;
  };
  const auto known = std::ranges::find_if(handles_, same);
  if (known == handles_.end() && handles_.size() == kMostHandles) return false;
  const auto handle = static_cast<uint32_t>(known - handles_.begin());
  if (known == handles_.end()) handles_.push_back(range.handle);
  regions_.push_back({region, handle, range.offset});
  return true;
}

}  // namespace hccl_like
