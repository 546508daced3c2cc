#include "device/device.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/log.h"
#include "device/plugin_table.h"

namespace hccl_like {
namespace {

// The plugin's last_error, or a text for the status if there is none.
std::string reason(const hcd_api& api, int status) {
  const char* const text = api.last_error();
  if (text != nullptr && *text != '\0') return text;
  switch (status) {
    case HCD_NOT_READY:
      return "not ready";
    case HCD_UNSUPPORTED:
      return "not supported";
    case HCD_INVALID:
      return "an argument is wrong";
    case HCD_OUT_OF_MEMORY:
      return "out of memory";
    case HCD_DEVICE_LOST:
      return "the device is lost";
    default:
      return "status " + std::to_string(status);
  }
}

// A fixed-size text field that may lack its terminating zero.
template <size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return std::string(field, strnlen(field, kSize));
}

}  // namespace

Device::Device(const hcd_api& api, std::string origin)
    : api_(complete_table(api, origin)),
      name_(api_.name),
      dmabuf_(reinterpret_cast<const hcd_dmabuf*>(
          find_extension(api_, HCD_EXTENSION_DMABUF, offsetof(hcd_dmabuf, identify)))) {
  if (const int status = api_.init(); status != HCD_OK) {
    throw_error(ErrorCode::kDevice, "the plugin '" + name_ + "'" +
                                        (origin.empty() ? "" : " (" + origin + ")") +
                                        " cannot start, says its init: " + reason(api_, status));
  }
  if (!has_host_func() && can_wait_on_words())
    word_functions_ = std::make_unique<WordFunctions>(api_);
}

Device::~Device() {
  word_functions_.reset();
  api_.fini();
}

Result<DeviceInfo> Device::info(int index) const {
  if (api_.device_info == nullptr) return DeviceInfo{};
  hcd_device_info raw{};
  raw.size = sizeof(raw);
  raw.numa_node = -1;
  if (auto error = check(api_.device_info(index, &raw), index, {"describe itself", "device_info"}))
    return *error;
  return DeviceInfo{.caps = raw.caps,
                    .numa_node = raw.numa_node,
                    .uuid = text_of(raw.uuid),
                    .pci = text_of(raw.pci)};
}

Result<hcd_stream> Device::stream_from_torch(int index, int64_t stream_id, void* native) const {
  constexpr Attempt kAttempt{"translate a torch stream", "stream_from_torch"};
  if (!can_translate_streams()) return unsupported(index, kAttempt);
  hcd_stream stream = 0;
  if (auto error =
          check(api_.stream_from_torch(index, stream_id, native, &stream), index, kAttempt))
    return *error;
  return stream;
}

std::optional<Error> Device::synchronize(int index, hcd_stream stream) const {
  return check(api_.stream_sync(index, stream), index, {"wait for a stream", "stream_sync"});
}

std::optional<Error> Device::copy_to_host(int index, void* host, hcd_ref from, size_t bytes,
                                          hcd_stream stream) const {
  return check(api_.copy_d2h(index, host, from, bytes, stream), index,
               {"copy to the host", "copy_d2h"});
}

std::optional<Error> Device::copy_from_host(int index, hcd_ref to, const void* host, size_t bytes,
                                            hcd_stream stream) const {
  return check(api_.copy_h2d(index, to, host, bytes, stream), index,
               {"copy from the host", "copy_h2d"});
}

Result<MappedRange> Device::map(int index, hcd_ref ref, size_t bytes) const {
  constexpr Attempt kAttempt{"map memory for the host", "map"};
  if (!can_map()) return unsupported(index, kAttempt);
  void* host = nullptr;
  if (auto error = check(api_.map(index, ref, bytes, &host), index, kAttempt)) return *error;
  return MappedRange(*this, api_.unmap, {"unmap memory", "unmap"}, index, host, bytes);
}

std::optional<Error> Device::host_function(int index, hcd_stream stream, void (*fn)(void*),
                                           void* arg) const {
  constexpr Attempt kAttempt{"queue a host function", "host_func"};
  if (has_host_func()) return check(api_.host_func(index, stream, fn, arg), index, kAttempt);
  if (!word_functions_) return unsupported(index, kAttempt);
  const auto [status, entry] = word_functions_->queue(index, stream, fn, arg);
  return check(status, index, {kAttempt.what, entry});
}

std::optional<Error> Device::wait_for_word(int index, hcd_stream stream,
                                           const volatile uint64_t* word, uint64_t value) const {
  constexpr Attempt kAttempt{"queue a wait for a host word", "stream_wait_value"};
  if (!can_wait_on_words()) return unsupported(index, kAttempt);
  return check(api_.stream_wait_value(index, stream, word, value), index, kAttempt);
}

std::optional<Error> Device::write_word(int index, hcd_stream stream, volatile uint64_t* word,
                                        uint64_t value) const {
  constexpr Attempt kAttempt{"queue a store to a host word", "stream_write_value"};
  if (!can_wait_on_words()) return unsupported(index, kAttempt);
  return check(api_.stream_write_value(index, stream, word, value), index, kAttempt);
}

Result<ExportedRange> Device::export_range(int index, hcd_ref ref, size_t bytes) const {
  constexpr Attempt kAttempt{"export memory to another process", "ipc_export"};
  if (!can_export()) return unsupported(index, kAttempt);
  ExportedRange range;
  const int status = api_.ipc_export(index, ref, bytes, &range.handle, &range.offset);
  if (auto error = check(status, index, kAttempt)) return *error;
  return range;
}

bool Device::still_exported(int index, const hcd_ipc_handle& handle) const {
  return !can_tell_freed_exports() || api_.ipc_lives(index, &handle) != HCD_INVALID;
}

Result<ImportedRange> Device::import_range(int index, const hcd_ipc_handle& handle) const {
  constexpr Attempt kAttempt{"import memory of another process", "ipc_open"};
  if (!can_export()) return unsupported(index, kAttempt);
  void* host = nullptr;
  size_t bytes = 0;
  if (auto error = check(api_.ipc_open(index, &handle, &host, &bytes), index, kAttempt))
    return *error;
  return ImportedRange(*this, api_.ipc_close, {"close imported memory", "ipc_close"}, index, host,
                       bytes);
}

Result<ImportedRange> Device::open_peer(int index, const hcd_ipc_handle& handle) const {
  constexpr Attempt kAttempt{"map memory of another process for itself", "peer_open"};
  if (!can_open_peers()) return unsupported(index, kAttempt);
  void* base = nullptr;
  size_t bytes = 0;
  if (auto error = check(api_.peer_open(index, &handle, &base, &bytes), index, kAttempt))
    return *error;
  return ImportedRange(*this, api_.peer_close, {"close imported memory", "peer_close"}, index, base,
                       bytes);
}

std::optional<Error> Device::check(int status, int index, Attempt attempt) const {
  if (status == HCD_OK) return std::nullopt;
  const ErrorCode code = status == HCD_UNSUPPORTED ? ErrorCode::kUnsupported : ErrorCode::kDevice;
  return Error{code, name_ + ":" + std::to_string(index) + " could not " + attempt.what + " (" +
                         attempt.entry + " of its plugin): " + reason(api_, status)};
}

Error Device::unsupported(int index, Attempt attempt) const {
  return {ErrorCode::kUnsupported, name_ + ":" + std::to_string(index) + " cannot " + attempt.what +
                                       ": its plugin has no " + attempt.entry};
}

}  // namespace hccl_like
