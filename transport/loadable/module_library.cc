#include "transport/loadable/module_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "core/base/crash_note.h"
#include "core/base/error.h"

namespace hccl_like {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& origin,
                         const std::string& why) {
  throw_error(ErrorCode::kUnsupported,
              "the transport module '" + name + "' (" + origin + ") cannot be used: " + why);
}

struct Entry {
  const char* name;
  bool present;
};

}  // namespace

hct_api complete_module_table(const hct_api* api, const std::string& name,
                              const std::string& origin) {
  if (api == nullptr)
    refuse(name, origin,
           "it does not speak version " + std::to_string(HCT_MAJOR) +
               " of the interface; install a version of it that fits this hccl-like");
  if (api->size < offsetof(hct_api, route) || api->size > size_t{1} << 20)
    refuse(name, origin,
           "its table says a size of " + std::to_string(api->size) +
               " bytes, and version 1 has at least " + std::to_string(offsetof(hct_api, route)));
  hct_api table{};
  std::memcpy(&table, api, std::min(api->size, sizeof table));
  table.size = sizeof table;
  for (const Entry& entry :
       std::initializer_list<Entry>{{"name", table.name != nullptr},
                                    {"last_error", table.last_error != nullptr},
                                    {"open", table.open != nullptr},
                                    {"close", table.close != nullptr},
                                    {"address", table.address != nullptr},
                                    {"can_reach", table.can_reach != nullptr},
                                    {"connect", table.connect != nullptr},
                                    {"close_wire", table.close_wire != nullptr},
                                    {"write", table.write != nullptr},
                                    {"peek", table.peek != nullptr},
                                    {"release", table.release != nullptr},
                                    {"read", table.read != nullptr},
                                    {"failure", table.failure != nullptr},
                                    {"flush", table.flush != nullptr},
                                    {"prepare_sleep", table.prepare_sleep != nullptr},
                                    {"end_sleep", table.end_sleep != nullptr}})
    if (!entry.present)
      refuse(name, origin, std::string("it lacks the mandatory entry ") + entry.name);
  const int reads = (table.show != nullptr) + (table.hide != nullptr) +
                    (table.start_read != nullptr) + (table.read_state != nullptr) +
                    (table.progress_reads != nullptr) + (table.tell != nullptr) +
                    (table.hear != nullptr) + (table.abandon_reads != nullptr);
  if (reads != 0 && reads != 8)
    refuse(name, origin,
           "of the entries show to abandon_reads it has " + std::to_string(reads) +
               ", and all 8 are needed or none");
  if (name != table.name) refuse(name, origin, std::string("it calls itself '") + table.name + "'");
  return table;
}

hct_api load_module(const std::string& name, const std::string& path) {
  const CrashNote note("hccl-like: the transport module '" + name + "' (" + path +
                       ") crashed while it was loaded; take it out of HCCL_LIKE_TRANSPORTS\n");
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    refuse(name, path, why == nullptr ? "no reason given" : why);
  }
  const auto get_api = reinterpret_cast<hct_get_api_fn>(::dlsym(library, HCT_GET_API_SYMBOL));
  if (get_api == nullptr) refuse(name, path, "it does not export " HCT_GET_API_SYMBOL);
  return complete_module_table(get_api(HCT_MAJOR, HCT_MINOR), name, path);
}

}  // namespace hccl_like
