#include "process_group/issue/staging_lanes.h"

#include <algorithm>

namespace hccl_like {

StagingLanes::StagingLanes(Devices& devices, const DeviceAccess& access, size_t most)
    : devices_(devices), access_(access), most_(most) {}

std::unique_ptr<Staging> StagingLanes::make() const {
  return std::make_unique<Staging>(devices_, access_, most_);
}

Staging* StagingLanes::find(const Request& request) {
  if (!is_message(request)) {
    if (!collectives_) collectives_ = make();
    return collectives_.get();
  }
  const Row row{request.root, request.collective, request.tag};
  auto lane = std::ranges::find_if(
      messages_, [&](Lane& one) { return one.row == row && one.staging->busy(); });
  if (lane == messages_.end())
    lane = std::ranges::find_if(messages_, [](Lane& one) { return !one.staging->busy(); });
  if (lane == messages_.end()) {
    if (messages_.size() == kMost) return nullptr;
    lane = messages_.insert(lane, {row, make()});
  }
  lane->row = row;
  return lane->staging.get();
}

}  // namespace hccl_like
