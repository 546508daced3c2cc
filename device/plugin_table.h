#pragma once
// From a vendor's table to one that is safe to use: complete, and checked once.
#include <string>

#include "device/plugin.h"

namespace hccl_like {

// Asks for HCD_MAJOR.HCD_MINOR. Throws kDevice if the plugin does not speak this major version.
// `origin` says in the message where it came from, usually the library's path.
const hcd_api& negotiate(hcd_get_api_fn get_api, const std::string& origin);

// A copy of the table as long as ours: entries that an older plugin does not have are null, and
// nobody needs HCD_HAS any more. Throws kDevice, naming the entry, if a mandatory one is missing or
// a group is there only in part, and if the size cannot be one. `origin` says in the message where
// the table came from, if it is not empty.
hcd_api complete_table(const hcd_api& api, const std::string& origin = {});

// The first extension of that type that is at least `size` long; null if there is none.
const hcd_extension* find_extension(const hcd_api& complete, uint32_t type, size_t size) noexcept;

}  // namespace hccl_like
