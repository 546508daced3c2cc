#pragma once
// Loads a transport module and checks that its table is what module.h says.
#include <string>

#include "transport/module.h"

namespace hccl_like {

// The table of the module in a shared library, entries that it lacks null. The library stays loaded
// for good. Throws kUnsupported, with a sentence that names `name` and the path, if the library
// cannot be loaded, exports nothing, speaks another version or lacks a mandatory entry. If the
// library crashes the process while it is loaded, the last line on standard error names it.
hct_api load_module(const std::string& name, const std::string& path);

// The same for a table that is there already. `origin` is for the error's text.
hct_api complete_module_table(const hct_api* api, const std::string& name,
                              const std::string& origin);

}  // namespace hccl_like
