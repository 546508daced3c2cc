#pragma once
// The last_error() of the host's plugin table.
#include <string>

namespace hccl_like::host {

// Stores the message for the calling thread and returns `status`.
int fail(int status, std::string sentence);
const char* last_error();

}  // namespace hccl_like::host
