#pragma once
// Turns a vendor's table into a complete, checked one.
#include <string>

#include "device/plugin.h"

namespace hccl_like {

// Requests HCD_MAJOR.HCD_MINOR. Throws kDevice if the plugin lacks this major version. `origin`
// (usually the library path) is for messages.
const hcd_api& negotiate(hcd_get_api_fn get_api, const std::string& origin);

// A copy with our length: entries that the plugin lacks are null, so HCD_HAS is not needed. Throws
// kDevice, with the entry's name, on a missing mandatory entry, an incomplete group or an
// impossible size. `origin`, if not empty, is for messages.
hcd_api complete_table(const hcd_api& api, const std::string& origin = {});

// The first extension of that type with at least `size` bytes, or null.
const hcd_extension* find_extension(const hcd_api& complete, uint32_t type, size_t size) noexcept;

}  // namespace hccl_like
