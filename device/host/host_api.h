#pragma once
// The built-in device: CPU memory, as a plugin table like any vendor's.
#include "device/plugin.h"

namespace hccl_like {

// Named "cpu". `base` is an address; mapping gives it back, copies are done when they return, and
// there are no streams. Peers can map what SharedMemory and SharedPool made; a file that somebody
// else mapped, by handle_of() (host_ipc.h).
const hcd_api& host_api() noexcept;

}  // namespace hccl_like
