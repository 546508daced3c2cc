#include "transport/same_host/peer_memory.h"

#include <unistd.h>

#include <string>
#include <utility>

namespace hccl_like {

size_t PeerMemory::Hash::operator()(const Key& key) const noexcept {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  const uint64_t sum = (key.name ^ key.owner) * kOdd +
                       static_cast<uint64_t>(key.index) * (2 * kOdd + 1) +
                       static_cast<uint64_t>(key.user) + reinterpret_cast<uintptr_t>(key.device);
  return sum ^ (sum >> 29);
}

// Limits memory that owners have freed and that this process still maps.
size_t PeerMemory::half_of_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  return pages <= 0 || bytes <= 0 ? SIZE_MAX
                                  : static_cast<size_t>(pages) / 2 * static_cast<size_t>(bytes);
}

Result<PeerMemory::View> PeerMemory::view(const Mapping& mapping, uint64_t offset, size_t bytes) {
  const size_t size = mapping->size();
  if (offset > size || bytes > size - offset) {
    return Error{ErrorCode::kMismatch, "a peer speaks of " + std::to_string(bytes) +
                                           " bytes at offset " + std::to_string(offset) +
                                           " of memory that has " + std::to_string(size)};
  }
  return View{mapping, mapping->data() + offset};
}

Result<PeerMemory::View> PeerMemory::open(const Device& device, int index,
                                          const ExportedRange& range, size_t bytes,
                                          const PeerCommons* owner, For user) {
  if (owner == nullptr || range.name == 0) {
    auto imported = map(device, index, range.handle, user);
    if (!imported.ok()) return imported.error();
    return view(std::make_shared<const PeerMapping>(std::move(imported).value()), range.offset,
                bytes);
  }
  Mappings closed;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const Key key{&device, index, owner->identity(), range.name, user};
  auto found = known_.find(key);
  if (found == known_.end()) {
    closed = take_freed();
    found = known_.emplace(key, make(key, range.handle, *owner)).first;
    make_room(found, closed);
  }
  const Known& known = found->second;
  if (known.error) return *known.error;
  known.mapping->used_.store(clock_.fetch_add(1, std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
  return view(known.mapping, range.offset, bytes);
}

Result<ImportedRange> PeerMemory::map(const Device& device, int index, const hcd_ipc_handle& handle,
                                      For user) {
  return user == For::kHost ? device.import_range(index, handle) : device.open_peer(index, handle);
}

PeerMemory::Known PeerMemory::make(const Key& key, const hcd_ipc_handle& handle,
                                   const PeerCommons& owner) {
  auto imported = map(*key.device, key.index, handle, key.user);
  if (!imported.ok()) return {.mapping = nullptr, .error = imported.error(), .owner = owner};
  auto mapping = std::make_shared<const PeerMapping>(std::move(imported).value());
  bytes_ += mapping->size();
  return {.mapping = std::move(mapping), .error = std::nullopt, .owner = owner};
}

void PeerMemory::close_freed() {
  Mappings closed;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  clock_.fetch_add(kBetweenLooks, std::memory_order_relaxed);
  closed = take_freed();
}

bool PeerMemory::may_be_freed(const Key& key, const Known& known) const {
  if (!known.owner.exports(key.name)) return true;
  if (key.device->can_tell_freed_exports() || !known.mapping || known.mapping.use_count() > 1)
    return false;
  const uint64_t unused =
      clock_.load(std::memory_order_relaxed) - known.mapping->used_.load(std::memory_order_relaxed);
  return unused > kUnusedUntold;
}

PeerMemory::Mappings PeerMemory::take_freed() {
  Mappings closed;
  for (auto at = known_.begin(); at != known_.end();)
    at = may_be_freed(at->first, at->second) ? remove(at, closed) : std::next(at);
  return closed;
}

void PeerMemory::make_room(Table::iterator added, Mappings& closed) {
  while (known_.size() > kKept || bytes_ > most_bytes_) {
    auto oldest = known_.end();
    uint64_t oldest_use = 0;
    for (auto at = known_.begin(); at != known_.end(); ++at) {
      const Mapping& mapping = at->second.mapping;
      if (at == added || mapping.use_count() > 1) continue;
      const uint64_t used = mapping ? mapping->used_.load(std::memory_order_relaxed) : 0;
      if (oldest == known_.end() || used < oldest_use) oldest = at, oldest_use = used;
    }
    if (oldest == known_.end()) break;
    remove(oldest, closed);
  }
}

PeerMemory::Table::iterator PeerMemory::remove(Table::iterator at, Mappings& closed) {
  if (Mapping mapping = std::move(at->second.mapping)) {
    bytes_ -= mapping->size();
    closed.push_back(std::move(mapping));
  }
  return known_.erase(at);
}

PeerMemory::Stats PeerMemory::stats() const {
  const std::lock_guard lock(mutex_);
  return {.mappings = known_.size(), .bytes = bytes_};
}

}  // namespace hccl_like
