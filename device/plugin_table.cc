#include "device/plugin_table.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "core/error.h"

namespace hccl_like {
namespace {

struct Entry {
  const char* name;
  bool present;
};

void require(const std::string& plugin, std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    if (entry.present) continue;
    throw_error(ErrorCode::kDevice, "the plugin '" + plugin + "' lacks the mandatory entry " +
                                        entry.name + "; ask its vendor");
  }
}

void require_all_or_none(const std::string& plugin, std::initializer_list<Entry> entries) {
  const auto is_present = [](const Entry& entry) { return entry.present; };
  if (std::none_of(entries.begin(), entries.end(), is_present)) return;
  const auto missing = std::find_if_not(entries.begin(), entries.end(), is_present);
  if (missing == entries.end()) return;
  throw_error(ErrorCode::kDevice,
              "the plugin '" + plugin + "' has " +
                  std::find_if(entries.begin(), entries.end(), is_present)->name + " but not " +
                  missing->name + ", which go together; ask its vendor");
}

}  // namespace

const hcd_api& negotiate(hcd_get_api_fn get_api, const std::string& origin) {
  const hcd_api* const api = get_api(HCD_MAJOR, HCD_MINOR);
  if (api != nullptr) return *api;
  throw_error(ErrorCode::kDevice, "the device plugin " + origin + " does not speak version " +
                                      std::to_string(HCD_MAJOR) +
                                      " of the plugin interface; install a version of it " +
                                      "that fits this hccl-like");
}

hcd_api complete_table(const hcd_api& api) {
  hcd_api table{};
  std::memcpy(&table, &api, std::min(api.size, sizeof(table)));
  table.size = sizeof(table);
  const std::string plugin = table.name == nullptr ? "" : table.name;
  if (plugin.empty())
    throw_error(ErrorCode::kDevice, "a device plugin does not say its name; ask its vendor");
  require(plugin, {{"init", table.init != nullptr},
                   {"fini", table.fini != nullptr},
                   {"last_error", table.last_error != nullptr},
                   {"stream_sync", table.stream_sync != nullptr},
                   {"copy_d2h", table.copy_d2h != nullptr},
                   {"copy_h2d", table.copy_h2d != nullptr}});
  require_all_or_none(plugin, {{"map", table.map != nullptr}, {"unmap", table.unmap != nullptr}});
  require_all_or_none(plugin, {{"stream_wait_value", table.stream_wait_value != nullptr},
                               {"stream_write_value", table.stream_write_value != nullptr}});
  require_all_or_none(plugin, {{"ipc_export", table.ipc_export != nullptr},
                               {"ipc_open", table.ipc_open != nullptr},
                               {"ipc_close", table.ipc_close != nullptr}});
  require_all_or_none(plugin, {{"peer_open", table.peer_open != nullptr},
                               {"peer_close", table.peer_close != nullptr}});
  return table;
}

}  // namespace hccl_like
