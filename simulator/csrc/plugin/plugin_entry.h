#pragma once
// Shared helpers of the entries of the plugin's table.
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/plugin.h"
#include "memory/arena.h"
#include "runtime/idle_calls.h"
#include "runtime/stream.h"

namespace torch_sim {

// The status for the exception that is being handled; its sentence is the thread's last error from
// now on.
int plugin_failure();
const char* plugin_last_error();

// Runs the body of an entry; an exception becomes a status and a sentence.
template <typename Body>
int guarded(Body body) {
  try {
    await_idle_calls();
    return body();
  } catch (...) {
    return plugin_failure();
  }
}

// Reports a request for a feature that the device does not have.
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Calls use(arena, where the range begins in it), while it cannot go away; throws if not all of the
// range is memory of that device.
int with_arena_of(int device, hcd_ref ref, size_t bytes,
                  const std::function<int(const Arena& arena, uint64_t at)>& use);
// The kernel's address of a place in device memory; checks the range as above.
void* kernel_address(int device, hcd_ref ref, size_t bytes);

// Null for 0. Throws if the stream is another device's.
Stream* stream_of(int device, hcd_stream stream);
Stream& stream_or_throw(int device, hcd_stream stream);

// For work of streams: nobody wakes a waiter on a plain word. Looks often at first, then leaves the
// processor to others.
template <typename Condition>
void wait_until(Condition holds) {
  for (int look = 0; !holds(); ++look) {
    if (look < 1000)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(look < 10000 ? 20 : 200));
  }
}

// Work on `bytes` of memory in the stream's order; without a stream it is done here and now.
void submit(int device, hcd_stream stream, size_t bytes, const Stream::Work& work);

// Elementwise out = (in[0] * scale op in[1] * scale op ...) * result_scale, on the kernel's
// addresses; `out` may be one of `in`. Throws NotSupported.
struct Reduction {
  void* out;
  std::vector<const void*> in;
  uint64_t count;
  double scale = 1, result_scale = 1;
};
Stream::Work reduction(const Reduction& of, hcd_type type, hcd_op op);
size_t bytes_of(hcd_type type);

// Fills in the entries of version 1.2.
void add_streams_and_events(hcd_api& api);
void add_memory(hcd_api& api);
void add_small_calls(hcd_api& api);

}  // namespace torch_sim
