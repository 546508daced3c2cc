#include "process_group/staging/staging_memory.h"

#include <unistd.h>

#include <cstdint>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "core/base/log.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/device/host_tensors.h"

namespace hccl_like {
namespace {

at::TensorOptions bytes_on_host() { return at::TensorOptions().dtype(at::kByte); }

at::Tensor mappable(size_t bytes) {
  return empty_mappable({static_cast<int64_t>(bytes)}, bytes_on_host());
}

// Page-aligned: the plugin registers whole pages.
std::optional<StagingMemory> registered(const DeviceAccess& access, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  const at::Tensor around = mappable(whole + page);
  const auto address = reinterpret_cast<uintptr_t>(around.data_ptr());
  const auto begin = static_cast<int64_t>((page - address % page) % page);
  const at::Tensor pages = around.narrow(0, begin, static_cast<int64_t>(whole));
  auto held = access.plugin()->register_host(access.plugin_index(), pages.data_ptr(), whole);
  if (!held.ok()) {
    log_info([&] { return "staging memory is not registered: " + held.error().message; });
    return std::nullopt;
  }
  return StagingMemory{
      .tensor = pages, .kind = "registered by its plugin", .held = std::move(held).value()};
}

std::optional<StagingMemory> allocated(const DeviceAccess& access, size_t bytes) {
  auto held = access.plugin()->allocate_host(access.plugin_index(), bytes);
  if (!held.ok()) {
    log_info([&] { return "staging memory is not the plugin's: " + held.error().message; });
    return std::nullopt;
  }
  return StagingMemory{
      .tensor = at::from_blob(held.value().data(), {static_cast<int64_t>(bytes)}, bytes_on_host()),
      .kind = "allocated by its plugin",
      .held = std::move(held).value()};
}

}  // namespace

StagingMemory StagingMemory::make(const DeviceAccess& access, size_t bytes) {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const Device* const plugin = access.plugin();
  if (plugin != nullptr && plugin->can_register_host())
    if (auto memory = registered(access, bytes)) return std::move(*memory);
  if (capabilities_of(access.device()).has(Feature::kPinnedMemory))
    return {.tensor = at::empty({static_cast<int64_t>(bytes)}, bytes_on_host().pinned_memory(true)),
            .kind = "pinned by torch"};
  if (plugin != nullptr && plugin->can_allocate_host())
    if (auto memory = allocated(access, bytes)) return std::move(*memory);
  return {.tensor = mappable(bytes), .kind = "ordinary"};
}

}  // namespace hccl_like
