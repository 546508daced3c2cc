// The plugin's memory operations: work within the device, and the creation, import and export of
// memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "memory/handle.h"
#include "memory/strict.h"
#include "plugin/plugin_entry.h"
#include "runtime/pinned.h"
#include "runtime/runtime.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

int copy_d2d(int device, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream) {
  return guarded([&] {
    void* const target = kernel_address(device, to, bytes);
    const void* const source = kernel_address(device, from, bytes);
    submit(device, stream, bytes, [=] {
      WorkTime time(device);
      time.copy(target, source, bytes);
      const Window writes(target, bytes), reads(source, bytes);
      std::memcpy(target, source, bytes);
    });
    return HCD_OK;
  });
}

int reduce_many(int device, hcd_ref out, const hcd_ref* in, uint32_t sources, uint64_t count,
                hcd_type type, hcd_op op, double scale, double result_scale, hcd_stream stream) {
  return guarded([&] {
    const size_t bytes = count * bytes_of(type);
    Reduction of{kernel_address(device, out, bytes), {}, count, scale, result_scale};
    for (uint32_t i = 0; i < sources; ++i) of.in.push_back(kernel_address(device, in[i], bytes));
    submit(device, stream, bytes, [=, work = reduction(of, type, op)] {
      WorkTime time(device);
      size_t peers = time.if_peers(of.out, bytes);
      for (const void* source : of.in) peers += time.if_peers(source, bytes);
      time.kernel(bytes, peers);
      std::vector<Window> windows;
      windows.emplace_back(of.out, bytes);
      for (const void* source : of.in) windows.emplace_back(source, bytes);
      work();
    });
    return HCD_OK;
  });
}

int reduce(int device, hcd_ref inout, hcd_ref in, uint64_t count, hcd_type type, hcd_op op,
           hcd_stream stream) {
  const hcd_ref both[] = {inout, in};
  return reduce_many(device, inout, both, 2, count, type, op, 1, 1, stream);
}

int mem_alloc(int device, size_t bytes, void** base) {
  return guarded([&] {
    Device& found = Runtime::get().device(device);
    *base = to_handle(found.memory().allocate(bytes, found.default_stream()));
    return HCD_OK;
  });
}

int mem_free(int device, void* base) {
  return guarded(
      [&] { return Runtime::get().device(device).memory().free(from_handle(base)), HCD_OK; });
}

PinnedMemory& pinned() {
  static auto& memory = *new PinnedMemory();
  return memory;
}

int host_alloc(int device, size_t bytes, void** host) {
  return guarded([&] {
    Runtime::get().device(device);
    *host = pinned().allocate(bytes);
    return HCD_OK;
  });
}

int host_free(int, void* host) {
  return guarded([&] {
    if (!pinned().holds(host))
      throw std::invalid_argument("sim: this memory was not made by host_alloc");
    return pinned().free(host), HCD_OK;
  });
}

// All memory is the same to the simulator; it only sees to it that the rules are kept.
struct Registered {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};
Registered& registered() {
  static auto& ranges = *new Registered();
  return ranges;
}

int host_register(int device, void* host, size_t bytes) {
  return guarded([&] {
    Runtime::get().device(device);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (reinterpret_cast<uintptr_t>(host) % page != 0 || bytes % page != 0 || bytes == 0)
      throw std::invalid_argument("sim: only whole pages can be registered");
    const auto* at = static_cast<const char*>(host);
    std::lock_guard lock(registered().mutex);
    auto& ranges = registered().ranges;
    const auto after = ranges.lower_bound(at);
    const bool overlaps =
        (after != ranges.end() && after->first < at + bytes) ||
        (after != ranges.begin() && std::prev(after)->first + std::prev(after)->second > at);
    if (overlaps) throw std::invalid_argument("sim: some of this memory is registered already");
    ranges.emplace(at, bytes);
    return HCD_OK;
  });
}

int host_unregister(int, void* host) {
  return guarded([&] {
    std::lock_guard lock(registered().mutex);
    if (registered().ranges.erase(static_cast<const char*>(host)) == 0)
      throw std::invalid_argument("sim: this memory is not registered");
    return HCD_OK;
  });
}

int export_fd(int device, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset) {
  return guarded([&] {
    return with_arena_of(device, ref, bytes, [&](const Arena& arena, uint64_t at) {
      *fd = fcntl(arena.fd(), F_DUPFD_CLOEXEC, 0);
      if (*fd < 0) throw OutOfMemory("sim: this process has too many open files");
      *offset = at;
      return HCD_OK;
    });
  });
}

// Gives adapters no address: torch's address may be a handle, and the host may not read device
// memory.
int identify(int device, hcd_ref ref, size_t bytes, hcd_allocation* out) {
  return guarded([&] {
    return with_arena_of(device, ref, bytes, [&](const Arena& arena, uint64_t at) {
      hcd_allocation found{};
      found.size = out->size;
      found.identity[0] = arena.nonce()[0];
      found.identity[1] = arena.nonce()[1];
      found.begin = {to_handle(arena.begin()), 0};
      found.bytes = arena.bytes();
      found.offset = at;
      std::memcpy(out, &found, std::min(out->size, sizeof found));
      return HCD_OK;
    });
  });
}

const hcd_dmabuf kDmabuf = {
    .head = {.size = sizeof(hcd_dmabuf), .type = HCD_EXTENSION_DMABUF, .next = nullptr},
    .export_fd = export_fd,
    .identify = identify,
    .flush = nullptr};

}  // namespace

void add_memory(hcd_api& api) {
  api.copy_d2d = copy_d2d;
  api.reduce = reduce;
  api.reduce_many = reduce_many;
  api.mem_alloc = mem_alloc;
  api.mem_free = mem_free;
  api.host_alloc = host_alloc;
  api.host_free = host_free;
  api.host_register = host_register;
  api.host_unregister = host_unregister;
  api.extensions = &kDmabuf.head;
}

}  // namespace torch_sim
