#pragma once
// Loads a transport module and checks its table against module.h.
#include <string>

#include "transport/module.h"

namespace hccl_like {

// The table of a shared library's module; missing optional entries are null. The library stays
// loaded. Throws kUnsupported, with `name` and the path, if the library cannot be loaded, exports
// no table, has another version or lacks a mandatory entry. If loading crashes the process, the
// last line on standard error names the library.
hct_api load_module(const std::string& name, const std::string& path);

// The same for a table in memory. `origin` is for the error message.
hct_api complete_module_table(const hct_api* api, const std::string& name,
                              const std::string& origin);

}  // namespace hccl_like
