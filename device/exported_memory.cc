#include "device/exported_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

namespace hccl_like {
namespace {

// Freed allocations are detected on each new export, and once in this many lookups.
constexpr size_t kUsesBetweenLooks = 64;

// All exports of this process, by end address.
struct Live {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<const ExportedMemory>> by_end;
  std::atomic<size_t> count{0};
};
Live& live() {
  static auto& all = *new Live();
  return all;
}

}  // namespace

ExportedMemory::ExportedMemory(ExportedFile file, Mapping set_aside,
                               const DeviceAllocation& allocation, int index)
    : file_(std::move(file)),
      set_aside_(std::move(set_aside)),
      data_(set_aside_.valid() ? set_aside_.data() : static_cast<std::byte*>(allocation.address)),
      bytes_(allocation.bytes),
      identity_(allocation.identity),
      hmem_(allocation.hmem),
      index_(index) {}

// A new allocation may be registered at the address of a freed one: do not erase its entry.
ExportedMemory::~ExportedMemory() {
  const std::lock_guard lock(live().mutex);
  const auto own = live().by_end.find(data_ + bytes_);
  if (own == live().by_end.end() || !own->second.expired()) return;
  live().by_end.erase(own);
  live().count.store(live().by_end.size());
}

std::shared_ptr<const ExportedMemory> ExportedMemory::find(const void* at, size_t bytes) {
  if (live().count.load() == 0) return nullptr;
  const auto* const begin = static_cast<const std::byte*>(at);
  std::shared_ptr<const ExportedMemory> found;
  {
    const std::lock_guard lock(live().mutex);
    const auto behind = live().by_end.upper_bound(begin);
    if (behind == live().by_end.end()) return nullptr;
    found = behind->second.lock();
  }
  // Outside the lock: this may be the last reference.
  if (!found || begin < found->data() || begin + bytes > found->data() + found->size())
    return nullptr;
  return found;
}

Result<ExportedMemories::Range> ExportedMemories::range(const Device& device, int index,
                                                        hcd_ref ref, size_t bytes) {
  auto identified = device.identify(index, ref, bytes);
  if (!identified.ok()) return identified.error();
  const DeviceAllocation& allocation = identified.value();
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(kept_, [&](const Kept& one) {
    return one.device == &device && one.memory->index() == index &&
           one.memory->identity() == allocation.identity;
  });
  if (known != kept_.end()) {
    Range range{known->memory, known->memory->data() + allocation.offset};
    if (++found_ % kUsesBetweenLooks == 0) drop_freed();
    return range;
  }
  drop_freed();
  auto file = device.export_file(index, allocation.begin, allocation.bytes);
  if (!file.ok()) return file.error();
  Mapping set_aside;
  if (allocation.address == nullptr)
    set_aside =
        Mapping::map(-1, allocation.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  const auto made = std::make_shared<const ExportedMemory>(std::move(file).value(),
                                                           std::move(set_aside), allocation, index);
  {
    const std::lock_guard all(live().mutex);
    live().by_end[made->data() + made->size()] = made;
    live().count.store(live().by_end.size());
  }
  kept_.push_back({&device, allocation.begin, made});
  return Range{made, made->data() + allocation.offset};
}

void ExportedMemories::drop_freed() {
  std::erase_if(kept_, [](const Kept& one) {
    const ExportedMemory& memory = *one.memory;
    auto there = one.device->identify(memory.index(), one.begin, memory.size());
    return !there.ok() || there.value().identity != memory.identity();
  });
}

void ExportedMemories::clear() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
}

size_t ExportedMemories::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace hccl_like
