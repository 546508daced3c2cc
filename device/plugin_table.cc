#include "device/plugin_table.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// An upper bound for tables of this major version.
constexpr size_t kLargest = 64 << 10;

[[noreturn]] void refuse(const std::string& plugin, const std::string& why) {
  throw_error(ErrorCode::kDevice, "the plugin " + plugin + " " + why + "; ask its vendor");
}

struct Entry {
  const char* name;
  bool present;
};

void require(const std::string& plugin, std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    if (!entry.present) refuse(plugin, std::string("lacks the mandatory entry ") + entry.name);
  }
}

void require_all_or_none(const std::string& plugin, std::initializer_list<Entry> entries) {
  const auto is_present = [](const Entry& entry) { return entry.present; };
  const auto present = std::find_if(entries.begin(), entries.end(), is_present);
  const auto missing = std::find_if_not(entries.begin(), entries.end(), is_present);
  if (present == entries.end() || missing == entries.end()) return;
  refuse(plugin,
         std::string("has ") + present->name + " but not " + missing->name + ", which go together");
}

void require_groups(const std::string& plugin, const hcd_api& table) {
#define ENTRY(name) {#name, table.name != nullptr}
  require_all_or_none(plugin, {ENTRY(map), ENTRY(unmap)});
  require_all_or_none(plugin, {ENTRY(stream_wait_value), ENTRY(stream_write_value)});
  require_all_or_none(plugin, {ENTRY(ipc_export), ENTRY(ipc_open), ENTRY(ipc_close)});
  require_all_or_none(plugin, {ENTRY(peer_open), ENTRY(peer_close)});
  require_all_or_none(plugin, {ENTRY(stream_create), ENTRY(stream_destroy)});
  require_all_or_none(plugin, {ENTRY(event_record), ENTRY(stream_wait_event), ENTRY(event_query),
                               ENTRY(event_sync), ENTRY(event_destroy)});
  require_all_or_none(plugin, {ENTRY(mem_alloc), ENTRY(mem_free)});
  require_all_or_none(plugin, {ENTRY(host_alloc), ENTRY(host_free)});
  require_all_or_none(plugin, {ENTRY(host_register), ENTRY(host_unregister)});
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

hcd_api complete_table(const hcd_api& api, const std::string& origin) {
  const std::string at = origin.empty() ? "" : " (" + origin + ")";
  if (api.size < sizeof(size_t) || api.size > kLargest || api.size % alignof(hcd_api) != 0) {
    refuse("that was asked for its table" + at,
           "says that the table has " + std::to_string(api.size) +
               " bytes: its first member must be sizeof(hcd_api)");
  }
  hcd_api table{};
  std::memcpy(&table, &api, std::min(api.size, sizeof(table)));
  table.size = sizeof(table);
  if (table.name == nullptr || *table.name == '\0')
    refuse("that was asked for its table" + at, "does not say its name");
  const std::string plugin = "'" + std::string(table.name) + "'" + at;
  require(plugin, {ENTRY(init), ENTRY(fini), ENTRY(last_error), ENTRY(stream_sync), ENTRY(copy_d2h),
                   ENTRY(copy_h2d)});
#undef ENTRY
  require_groups(plugin, table);
  return table;
}

const hcd_extension* find_extension(const hcd_api& complete, uint32_t type, size_t size) noexcept {
  for (const hcd_extension* at = complete.extensions; at != nullptr; at = at->next) {
    if (at->type == type && at->size >= size) return at;
  }
  return nullptr;
}

}  // namespace hccl_like
