#include "collectives/stream/shown_memory.h"

#include <string>
#include <utility>

#include "collectives/engine/engine.h"
#include "core/base/log.h"

namespace hccl_like {

std::optional<ShownMemory> show(Communicator& communicator, const Device& device, int index,
                                const DeviceRange& range, Exports::Last& last) {
  auto exported = device.export_range(index, range.begin, range.bytes);
  if (!exported.ok()) {
    log_info([&] {
      return "a call goes through the host, because its memory cannot be shared: " +
             exported.error().message;
    });
    return std::nullopt;
  }
  const ExportedRange shown = std::move(exported).value();
  const uint64_t name = communicator.engine().exports()->name(device, index, shown.handle, last);
  return ShownMemory{
      .handle = shown.handle, .offset = shown.offset, .bytes = range.bytes, .name = name};
}

std::optional<ReachedMemory> reach(Communicator& communicator, const Device& device, int index,
                                   const ShownMemory& memory, int peer) {
  ExportedRange range{.handle = memory.handle, .offset = memory.offset, .name = memory.name};
  const Link& link = *communicator.links()[static_cast<size_t>(peer)];
  auto view = communicator.engine().peer_memory().open(device, index, range, memory.bytes,
                                                       link.commons(), PeerMemory::For::kDevice);
  if (!view.ok()) {
    log_info([&] {
      return "the memory of rank " + std::to_string(peer) +
             " cannot be mapped for the device: " + view.error().message;
    });
    return std::nullopt;
  }
  auto mapping = std::move(view).value().mapping;
  const hcd_ref begin{mapping->data(), memory.offset};
  return ReachedMemory{.begin = begin, .held = std::move(mapping)};
}

}  // namespace hccl_like
