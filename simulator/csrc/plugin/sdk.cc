// The runtime's functions for C, in terms of what the plugin's entries share.
#include <cstring>

#include "memory/strict.h"
#include "plugin/plugin_entry.h"
#include "runtime/runtime.h"
#include "runtime/traffic.h"
#include "simulator/torch_sim/include/sim_runtime.h"

namespace torch_sim {
namespace {

simError to_sim(int status) {
  switch (status) {
    case HCD_OK:
      return simSuccess;
    case HCD_INVALID:
      return simErrorInvalidValue;
    case HCD_OUT_OF_MEMORY:
      return simErrorMemoryAllocation;
    case HCD_UNSUPPORTED:
      return simErrorNotSupported;
    default:
      return simErrorUnknown;
  }
}

template <typename Body>
simError run(Body body) {
  return to_sim(guarded([&] { return body(), HCD_OK; }));
}

hcd_stream handle(simStream_t stream) { return reinterpret_cast<hcd_stream>(stream); }

}  // namespace
}  // namespace torch_sim

using namespace torch_sim;
#define SIM_API extern "C" __attribute__((visibility("default")))

SIM_API simError simGetDeviceCount(int* count) {
  return run([&] { *count = Runtime::device_count(); });
}

SIM_API simError simMalloc(int device, void** pointer, size_t bytes) {
  return run([&] {
    torch_sim::Device& found = Runtime::get().device(device);
    *pointer = found.memory().allocate(bytes, found.default_stream());
  });
}

SIM_API simError simFree(int device, void* pointer) {
  return run([&] { Runtime::get().device(device).memory().free(pointer); });
}

SIM_API simError simMemcpyAsync(int device, void* to, const void* from, size_t bytes,
                                simMemcpyKind kind, simStream_t stream) {
  return run([&] {
    const auto ours = [&](const void* at) {
      return kernel_address(device, {const_cast<void*>(at), 0}, bytes);
    };
    void* const target = kind == simMemcpyHostToDevice ? ours(to) : to;
    const void* const source = kind == simMemcpyHostToDevice ? from : ours(from);
    submit(device, handle(stream), bytes, [=] {
      WorkTime time(device);
      time.copy(target, source, bytes);
      const Window writes(target, bytes), reads(source, bytes);
      if (bytes != 0) std::memcpy(target, source, bytes);
    });
  });
}

SIM_API simError simStreamSynchronize(int device, simStream_t stream) {
  return run([&] {
    if (Stream* found = stream_of(device, handle(stream)))
      found->synchronize();
    else
      Runtime::get().device(device).synchronize();
  });
}

SIM_API simError simStreamGet(int device, int64_t torch_id, simStream_t* stream) {
  return run([&] {
    Stream* const found = Runtime::get().device(device).stream(torch_id);
    if (!found)
      throw std::invalid_argument("sim: device " + std::to_string(device) + " has no stream " +
                                  std::to_string(torch_id));
    *stream = reinterpret_cast<simStream_t>(found);
  });
}

SIM_API simError simLaunchHostFunc(int device, simStream_t stream, void (*fn)(void*), void* arg) {
  return run([&] { stream_or_throw(device, handle(stream)).enqueue([=] { fn(arg); }); });
}

SIM_API simError simHostGetPointer(int device, void** host, void* pointer, size_t bytes) {
  return run([&] {
    if (discrete()) throw NotSupported("sim: with TORCH_SIM_DISCRETE=1 the host has no pointer");
    *host = kernel_address(device, {pointer, 0}, bytes);
    open_for_good(*host, bytes);
  });
}

SIM_API const char* simGetLastErrorString() { return plugin_last_error(); }
