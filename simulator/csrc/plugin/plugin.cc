// The simulator as a device plugin: the C table by which libraries that know nothing of it use its
// memory and streams.
#include "device/plugin.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/flaws.h"
#include "memory/handle.h"
#include "memory/strict.h"
#include "plugin/ipc.h"
#include "plugin/plugin_entry.h"
#include "runtime/block_copies.h"
#include "runtime/runtime.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

// All of what `ours`, the device's side, is a part of.
struct WholeBlock {
  const void* at;
  size_t bytes;
};

WholeBlock block_of(int device, hcd_ref ours) {
  void* const base = from_handle(ours.base);
  return {Runtime::get().space().to_kernel(base),
          Runtime::get().device(device).memory().bytes_at(base)};
}

int copy(int device, hcd_stream stream, void* to, const void* from, size_t bytes,
         WholeBlock block) {
  submit(device, stream, bytes, [=] {
    if (bytes < block.bytes) touch_block(device, block.at, block.bytes);
    WorkTime time(device);
    time.copy(to, from, bytes);
    const Window writes(to, bytes), reads(from, bytes);
    std::memcpy(to, from, bytes);
  });
  return HCD_OK;
}

int init() {
  return guarded([] { return Runtime::get(), HCD_OK; });
}

void fini() {}

std::string host_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  std::erase(id, '-');
  return id;
}

int device_info(int device, hcd_device_info* out) {
  return guarded([&] {
    Runtime::get().device(device);
    hcd_device_info info{};
    info.size = out->size;
    info.caps = HCD_CAP_ASYNC_COPY | (discrete() ? 0 : HCD_CAP_COHERENT_MAP) |
                (has(Flaw::kIdleCalls) ? HCD_CAP_CALLS_AWAIT_IDLE : 0);
    info.numa_node = -1;
    ("sim" + std::to_string(device) + "-" + host_id()).copy(info.uuid, sizeof info.uuid - 1);
    std::memcpy(out, &info, std::min(out->size, sizeof info));
    return HCD_OK;
  });
}

int stream_from_torch(int device, int64_t stream_id, void* native, hcd_stream* out) {
  return guarded([&] {
    Stream* found =
        native ? static_cast<Stream*>(native) : Runtime::get().device(device).stream(stream_id);
    if (!found)
      throw std::invalid_argument("sim: device " + std::to_string(device) + " has no stream " +
                                  std::to_string(stream_id));
    *out = reinterpret_cast<hcd_stream>(found);
    return stream_of(device, *out), HCD_OK;
  });
}

int stream_sync(int device, hcd_stream stream) {
  return guarded([&] {
    if (Stream* queue = stream_of(device, stream))
      queue->synchronize();
    else
      Runtime::get().device(device).synchronize();
    return HCD_OK;
  });
}

int copy_d2h(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  return guarded([&] {
    const void* const source = kernel_address(device, from, bytes);
    return copy(device, stream, host, source, bytes, block_of(device, from));
  });
}

int copy_h2d(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  return guarded([&] {
    void* const target = kernel_address(device, to, bytes);
    return copy(device, stream, target, host, bytes, block_of(device, to));
  });
}

int map(int device, hcd_ref ref, size_t bytes, void** host) {
  return guarded([&] {
    *host = kernel_address(device, ref, bytes);
    open_window(*host, bytes);
    return HCD_OK;
  });
}

int unmap(int, void* host) {
  return guarded([&] { return close_window(host), HCD_OK; });
}

int host_func(int device, hcd_stream stream, void (*fn)(void*), void* arg) {
  return guarded([&] { return stream_or_throw(device, stream).enqueue([=] { fn(arg); }), HCD_OK; });
}

int stream_wait_value(int device, hcd_stream stream, const volatile uint64_t* word,
                      uint64_t value) {
  return guarded([&] {
    const auto wait = [=] {
      add_traffic(Count::kWaits, 1);
      wait_until([=] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value; });
    };
    return stream_or_throw(device, stream).enqueue(wait), HCD_OK;
  });
}

int stream_write_value(int device, hcd_stream stream, volatile uint64_t* word, uint64_t value) {
  return guarded([&] {
    const auto store = [=] {
      __atomic_store_n(const_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
    };
    return stream_or_throw(device, stream).enqueue_or_run(store), HCD_OK;
  });
}

static_assert(sizeof(ArenaToken) <= sizeof(hcd_ipc_handle));

int ipc_export(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  return guarded([&] {
    return with_arena_of(device, ref, bytes, [&](const Arena& arena, uint64_t at) {
      const ArenaToken token = export_arena(arena);
      *handle = {};
      std::memcpy(handle->bytes, &token, sizeof token);
      *offset = at;
      return HCD_OK;
    });
  });
}

int ipc_lives(int device, const hcd_ipc_handle* handle) {
  return guarded([&] {
    ArenaToken token;
    std::memcpy(&token, handle->bytes, sizeof token);
    return Runtime::get().device(device).memory().has_arena(token.nonce) ? HCD_OK : HCD_INVALID;
  });
}

std::mutex opened_mutex;
std::map<void*, size_t>& opened() {
  static auto& mappings = *new std::map<void*, size_t>();
  return mappings;
}

int ipc_open(int, const hcd_ipc_handle* handle, void** host, size_t* bytes) {
  return guarded([&] {
    if (discrete())
      throw NotSupported(
          "sim: with TORCH_SIM_DISCRETE=1 the host cannot map a peer's memory; peer_open maps it "
          "for "
          "the device");
    ArenaToken token;
    std::memcpy(&token, handle->bytes, sizeof token);
    const Mapping mapping = open_arena(token);
    std::lock_guard lock(opened_mutex);
    opened().emplace(mapping.at, mapping.bytes);
    *host = mapping.at;
    *bytes = mapping.bytes;
    return HCD_OK;
  });
}

int ipc_close(int, void* host) {
  return guarded([&] {
    std::lock_guard lock(opened_mutex);
    const auto found = opened().find(host);
    if (found == opened().end())
      throw std::invalid_argument("sim: this is no open mapping of a peer's memory");
    close_arena({found->first, found->second});
    opened().erase(found);
    return HCD_OK;
  });
}

int peer_open(int device, const hcd_ipc_handle* handle, void** base, size_t* bytes) {
  return guarded([&] {
    ArenaToken token;
    std::memcpy(&token, handle->bytes, sizeof token);
    *base = to_handle(Runtime::get().device(device).memory().add_peer(
        token.bytes, open_arena_file(token), token.nonce));
    *bytes = token.bytes;
    return HCD_OK;
  });
}

int peer_close(int device, void* base) {
  return guarded([&] {
    if (!Runtime::get().device(device).memory().remove_peer(from_handle(base)))
      throw std::invalid_argument("sim: no peer's memory is mapped there for device " +
                                  std::to_string(device));
    return HCD_OK;
  });
}

const hcd_api kFirst = {
    .size = sizeof(hcd_api),
    .name = "sim",
    .init = init,
    .fini = fini,
    .last_error = plugin_last_error,
    .device_info = device_info,
    .stream_from_torch = stream_from_torch,
    .stream_sync = stream_sync,
    .copy_d2h = copy_d2h,
    .copy_h2d = copy_h2d,
    .map = map,
    .unmap = unmap,
    .host_func = host_func,
    .stream_wait_value = stream_wait_value,
    .stream_write_value = stream_write_value,
    .ipc_export = ipc_export,
    .ipc_open = ipc_open,
    .ipc_close = ipc_close,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .ipc_lives = ipc_lives,
};

const hcd_api& table() {
  static const hcd_api complete = [] {
    hcd_api api = kFirst;
    add_streams_and_events(api);
    add_memory(api);
    add_small_calls(api);
    if (discrete()) api.map = nullptr, api.unmap = nullptr;
    return api;
  }();
  return complete;
}

}  // namespace
}  // namespace torch_sim

extern "C" __attribute__((visibility("default"))) const hcd_api* hcd_get_api(int major, int) {
  return major == HCD_MAJOR ? &torch_sim::table() : nullptr;
}
