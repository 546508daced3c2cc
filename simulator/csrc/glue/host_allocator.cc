#include "glue/host_allocator.h"

#include <cstring>

#include "base/error.h"
#include "glue/convert.h"
#include "runtime/pinned.h"

namespace torch_sim {
namespace {

PinnedMemory& pinned() {
  static auto& memory = *new PinnedMemory();
  return memory;
}

void free_pinned(void* at) {
  if (at && !Runtime::forked_away()) pinned().free(at);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    Runtime::get();
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    try {
      void* at = pinned().allocate(bytes);
      return {at, at, free_pinned, c10::Device(c10::DeviceType::CPU)};
    } catch (const OutOfMemory& error) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool record_event(void* at, void*, c10::Stream stream) override {
    return record_pinned_use(at, stream);
  }
  void empty_cache() override { pinned().empty_cache(); }
  at::HostStats get_stats() override {
    const PinnedMemory::Stats from = pinned().stats();
    at::HostStats to;
    to.active_requests.current = static_cast<int64_t>(from.in_use_blocks);
    to.active_bytes.current = static_cast<int64_t>(from.in_use_bytes);
    to.active_bytes.peak = static_cast<int64_t>(from.peak_bytes);
    to.allocations.current = static_cast<int64_t>(from.blocks);
    to.allocated_bytes.current = static_cast<int64_t>(from.bytes);
    return to;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override { pinned().reset_peaks(); }
};

struct RegisterHostMemory {
  RegisterHostMemory() {
    at::setHostAllocator(c10::DeviceType::PrivateUse1, &host_allocator(), /*priority=*/0);
  }
} host_memory_at_load;

}  // namespace

at::HostAllocator& host_allocator() {
  static auto& allocator = *new PinnedAllocator();
  return allocator;
}

bool is_pinned(const void* at) { return Runtime::initialised() && pinned().holds(at); }

bool record_pinned_use(const void* at, const c10::Stream& stream) {
  return pinned().record_use(at, from_c10(stream));
}

}  // namespace torch_sim
