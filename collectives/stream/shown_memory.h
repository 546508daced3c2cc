#pragma once
// Device memory that a rank shows the other ranks of its host.
#include <cstdint>
#include <optional>

#include "collectives/engine/communicator.h"
#include "device/device.h"
#include "transport/same_host/exports.h"
#include "transport/same_host/peer_memory.h"

namespace hccl_like {

// As it is in messages between ranks.
struct ShownMemory {
  hcd_ipc_handle handle{};
  uint64_t offset = 0, bytes = 0, name = 0;
};

// Nothing if peers cannot map the memory; the log says why. `last`: see Exports.
std::optional<ShownMemory> show(Communicator& communicator, const Device& device, int index,
                                const DeviceRange& range, Exports::Last& last);

struct ReachedMemory {
  hcd_ref begin{};
  PeerMemory::Mapping held;
};
// What `peer` shows, for work of this rank's device. Nothing if it cannot be mapped; the log says
// why.
std::optional<ReachedMemory> reach(Communicator& communicator, const Device& device, int index,
                                   const ShownMemory& memory, int peer);

}  // namespace hccl_like
