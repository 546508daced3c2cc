#include "glue/device_allocator.h"

#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/flaws.h"
#include "glue/convert.h"
#include "memory/handle.h"
#include "memory/strict.h"
#include "runtime/capture.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

c10::CachingAllocator::StatArray to_c10(const Counters& counters) {
  c10::CachingAllocator::StatArray out;
  for (size_t i = 0; i < counters.size(); ++i) {
    out[i].current = counters[i].current;
    out[i].peak = counters[i].peak;
    out[i].allocated = counters[i].allocated;
    out[i].freed = counters[i].freed;
  }
  return out;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device(), bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return free_device_memory; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get() == to_handle(data.get_context());
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    Runtime& runtime = Runtime::get();
    to = from_handle(to), from = from_handle(from);
    const int device = runtime.space().device_of(to);
    current_stream(device).run([&] {
      void* const target = runtime.space().to_kernel(to);
      const void* const source = runtime.space().to_kernel(from);
      WorkTime time(device);
      time.copy(target, source, bytes);
      const Window writes(target, bytes), reads(source, bytes);
      std::memcpy(target, source, bytes);
    });
  }

  bool initialized() override { return Runtime::initialised(); }
  void emptyCache(c10::MempoolId_t) override {
    for (int index = 0; index < Runtime::device_count(); ++index) {
      Device& device = Runtime::get().device(index);
      device.memory().empty_cache([&] { device.synchronize(); });
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_use(data, stream);
  }
  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const AllocatorStats from = memory(index).stats();
    DeviceStats to;
    to.allocation = to_c10(from.allocations);
    to.segment = to_c10(from.segments);
    to.active = to_c10(from.active);
    to.inactive_split = to_c10(from.inactive_split);
    to.allocated_bytes = to_c10(from.allocated_bytes);
    to.reserved_bytes = to_c10(from.reserved_bytes);
    to.active_bytes = to_c10(from.active_bytes);
    to.inactive_split_bytes = to_c10(from.inactive_split_bytes);
    to.requested_bytes = to_c10(from.requested_bytes);
    to.num_alloc_retries = from.retries;
    to.num_ooms = from.failures;
    to.num_device_alloc = from.segments_taken;
    to.num_device_free = from.segments_returned;
    return to;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { memory(index).reset_accumulated(); }
  void resetPeakStats(c10::DeviceIndex index) override { memory(index).reset_peaks(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return memory(index).memory_info();
  }

 private:
  static CachingAllocator& memory(int index) { return Runtime::get().device(index).memory(); }
};

void crash_unless_first_thread() {
  static const std::thread::id first = std::this_thread::get_id();
  if (std::this_thread::get_id() != first) raise(SIGSEGV);
}

// A captured operator runs once on this memory before it has values. Zeros are valid indices.
void begin_in_graph(Capture& capture, void* at, size_t bytes) {
  capture.add_memory(at);
  void* const memory = Runtime::get().space().to_kernel(at);
  const Window writes(memory, bytes);
  std::memset(memory, 0, bytes);
}

struct RegisterDeviceMemory {
  RegisterDeviceMemory() { c10::SetAllocator(c10::DeviceType::PrivateUse1, &device_allocator()); }
} device_memory_at_load;

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto& allocator = *new Allocator();
  return allocator;
}

c10::DataPtr allocate_on(int device, size_t bytes) {
  Device& owner = Runtime::get().device(device);
  if (bytes == 0) return {nullptr, device_at(device)};
  if (has(Flaw::kCrashingThreads)) crash_unless_first_thread();
  try {
    Stream& stream = current_stream(device);
    void* at = owner.memory().allocate(bytes, stream);
    if (const auto capture = stream.capture()) begin_in_graph(*capture, at, bytes);
    return {to_handle(at), at, free_device_memory, device_at(device)};
  } catch (const OutOfMemory& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
}

void record_use(const c10::DataPtr& data, const c10::Stream& stream) {
  if (!data.get() || has(Flaw::kForgetfulStreams)) return;
  Device& owner = Runtime::get().device(index_of(data.device()));
  owner.memory().record_use(data.get_context(), from_c10(stream));
}

// In a forked process the memory is the parent's to free.
void free_device_memory(void* at) {
  if (!at || Runtime::forked_away()) return;
  if (Graph::keeps(at)) return;
  Runtime& runtime = Runtime::get();
  runtime.device(runtime.space().device_of(at)).memory().free(at);
}

}  // namespace torch_sim
