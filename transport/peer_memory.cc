#include "transport/peer_memory.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace hccl_like {

bool PeerMemory::Key::operator==(const Key& other) const noexcept {
  return device == other.device && index == other.index &&
         std::memcmp(handle.bytes, other.handle.bytes, sizeof handle.bytes) == 0;
}

// A sum of products, which unlike a chain of them can be computed all at once.
size_t PeerMemory::Hash::operator()(const Key& key) const noexcept {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::array<uint64_t, sizeof key.handle.bytes / sizeof(uint64_t)> words;
  std::memcpy(words.data(), key.handle.bytes, sizeof words);
  uint64_t sum = static_cast<uint64_t>(key.index) + reinterpret_cast<uintptr_t>(key.device);
  uint64_t factor = kOdd;
  for (const uint64_t word : words) {
    sum += (word ^ (word >> 32)) * factor;
    factor += 2 * kOdd;
  }
  return sum ^ (sum >> 29);
}

Result<PeerMemory::View> PeerMemory::open(const Device& device, int index,
                                          const ExportedRange& range, size_t bytes) {
  Mappings closed;  // after the lock is released
  std::lock_guard lock(mutex_);
  const Key key{&device, index, range.handle};
  auto found = known_.find(key);
  if (found == known_.end()) {
    closed = make_room();
    Known known;
    if (auto imported = device.import_range(index, range.handle); imported.ok()) {
      known.mapping = std::make_shared<const ImportedRange>(std::move(imported).value());
    } else {
      known.error = imported.error();
    }
    found = known_.emplace(key, std::move(known)).first;
  }
  Known& known = found->second;
  known.used = ++clock_;
  if (known.error) return *known.error;
  const size_t size = known.mapping->size();
  if (range.offset > size || bytes > size - range.offset) {
    return Error{ErrorCode::kMismatch, "a peer speaks of " + std::to_string(bytes) +
                                           " bytes at offset " + std::to_string(range.offset) +
                                           " of memory that has " + std::to_string(size)};
  }
  return View{known.mapping, known.mapping->data() + range.offset};
}

// Takes out what must go so that there is a place for one more.
PeerMemory::Mappings PeerMemory::make_room() {
  Mappings closed;
  while (known_.size() >= kKept) {
    auto oldest = known_.end();
    for (auto at = known_.begin(); at != known_.end(); ++at) {
      const bool held = at->second.mapping.use_count() > 1;
      if (!held && (oldest == known_.end() || at->second.used < oldest->second.used)) oldest = at;
    }
    if (oldest == known_.end()) break;
    closed.push_back(std::move(oldest->second.mapping));
    known_.erase(oldest);
  }
  return closed;
}

}  // namespace hccl_like
