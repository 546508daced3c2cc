#include "runtime/device.h"

namespace torch_sim {

Device::Device(const AddressSpace& space, int index, size_t memory_limit)
    : index_(index), memory_(space, index, memory_limit) {
  make(0, 0);
}

Stream* Device::stream(int64_t id) const {
  return id >= 0 && id < kStreams ? streams_[id].load(std::memory_order_acquire) : nullptr;
}

Stream& Device::pooled_stream(bool high_priority) {
  const int64_t place = next_pooled_[high_priority]++ % kPool;
  return make(1 + (high_priority ? kPool : 0) + place, high_priority ? -1 : 0);
}

Stream& Device::new_stream(int priority) {
  const int64_t id = next_own_.load() < kStreams ? next_own_++ : kStreams;
  return id < kStreams ? make(id, priority) : pooled_stream(priority < 0);
}

void Device::synchronize() {
  for (auto& slot : streams_)
    if (Stream* stream = slot.load(std::memory_order_acquire)) stream->synchronize();
}

Stream& Device::make(int64_t id, int priority) {
  if (Stream* existing = stream(id)) return *existing;
  std::lock_guard lock(making_);
  if (Stream* existing = stream(id)) return *existing;
  Stream* fresh = new Stream(index_, id, priority);
  streams_[id].store(fresh, std::memory_order_release);
  return *fresh;
}

}  // namespace torch_sim
