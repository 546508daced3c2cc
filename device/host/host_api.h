#pragma once
// The built-in device "cpu": host memory behind a plugin table.
#include "device/plugin.h"

namespace hccl_like {

// `base` is an address; map returns it; copies are synchronous; no streams. Peers can map memory of
// SharedMemory and SharedPool, and foreign mapped files through handle_of() (host_ipc.h).
const hcd_api& host_api() noexcept;

}  // namespace hccl_like
