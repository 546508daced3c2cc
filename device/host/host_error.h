#pragma once
// What last_error() of the host's plugin table says.
#include <string>

namespace hccl_like::host {

// Notes the sentence for the calling thread and returns `status`.
int fail(int status, std::string sentence);
const char* last_error();

}  // namespace hccl_like::host
