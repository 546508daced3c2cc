#include "process_group/issue/stagings.h"

#include <algorithm>

#include "process_group/device/plugin_streams.h"

namespace hccl_like {

Stagings::Stagings(Devices& devices, const DeviceAccess& access, size_t most)
    : devices_(devices), access_(access), most_(most) {}

std::unique_ptr<Staging> Stagings::make() const {
  return std::make_unique<Staging>(devices_, access_, most_);
}

HostPhases& Stagings::host_phases(const std::shared_ptr<Communicator>& communicator) {
  if (!host_phases_)
    host_phases_ = std::make_unique<HostPhases>(devices_, access_, most_, communicator);
  return *host_phases_;
}

Stagings::Small& Stagings::small(const std::shared_ptr<Communicator>& communicator,
                                 const Call& next) {
  if (!small_.calls)
    small_.calls = std::make_shared<SmallCalls>(
        communicator, *access_.plugin(), access_.plugin_index(),
        *devices_.access(c10::kCPU).plugin(),
        PluginStreams(access_.device(), access_.plugin()).current().value(), next);
  return small_;
}

Staging* Stagings::find(const Request& request) {
  if (!is_message(request)) {
    if (!collectives_) collectives_ = make();
    return collectives_.get();
  }
  const Row row{request.root, request.collective, request.tag};
  auto found = std::ranges::find_if(
      messages_, [&](OfMessages& one) { return one.row == row && one.staging->busy(); });
  if (found == messages_.end())
    found = std::ranges::find_if(messages_, [](OfMessages& one) { return !one.staging->busy(); });
  if (found == messages_.end()) {
    if (messages_.size() >= kMost && request.root != kAnySource) return nullptr;
    found = messages_.insert(found, {row, make()});
  }
  found->row = row;
  return found->staging.get();
}

}  // namespace hccl_like
