#pragma once
// From a vendor's table to one that is safe to use: complete, and checked once.
#include <string>

#include "device/plugin.h"

namespace hccl_like {

// Asks for HCD_MAJOR.HCD_MINOR. Throws kDevice if the plugin does not speak this major version. `origin` says in the
// message where it came from, usually the library's path.
const hcd_api& negotiate(hcd_get_api_fn get_api, const std::string& origin);

// A copy of the table as long as ours: entries that an older plugin does not have are null, and nobody needs HCD_HAS
// any more. Throws kDevice, naming the entry, if a mandatory one is missing or a group is there only in part.
hcd_api complete_table(const hcd_api& api);

}  // namespace hccl_like
