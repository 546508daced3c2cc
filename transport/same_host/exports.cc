#include "transport/same_host/exports.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr size_t kMostLists = 64;

// Successive processes must not assign the same names.
uint64_t random_generation() {
  uint64_t drawn = 0;
  if (::getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
    throw_system("no random numbers for the names of exported memory");
  return drawn >> 20;  // leaves room to count
}

}  // namespace

// A Last of another Exports has another epoch.
Exports::Exports(Words& words)
    : words_(words), generation_(random_generation()), epoch_(generation_) {}

bool Exports::Known::is(const Device& other, int other_index,
                        const hcd_ipc_handle& other_handle) const {
  return device == &other && index == other_index &&
         std::memcmp(handle.bytes, other_handle.bytes, sizeof handle.bytes) == 0;
}

// A sum of products, because its terms can be computed in parallel (those of a chain cannot).
// Collisions are harmless: handles are compared as a whole.
uint64_t Exports::hash(const Device& device, int index, const hcd_ipc_handle& handle) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::array<uint64_t, sizeof handle.bytes / sizeof(uint64_t)> words;
  std::memcpy(words.data(), handle.bytes, sizeof words);
  uint64_t sum = static_cast<uint64_t>(index) + reinterpret_cast<uintptr_t>(&device);
  uint64_t factor = kOdd;
  for (const uint64_t word : words) {
    sum += (word ^ (word >> 32)) * factor;
    factor += 2 * kOdd;
  }
  return sum ^ (sum >> 29);
}

uint64_t Exports::name(const Device& device, int index, const hcd_ipc_handle& handle) {
  const std::lock_guard lock(mutex_);
  const uint64_t key = hash(device, index, handle);
  const auto [begin, end] = found_.equal_range(key);
  for (auto at = begin; at != end; ++at)
    if (known_[at->second].is(device, index, handle)) return known_[at->second].name;
  ask();
  uint32_t place = 0;
  if (!free_.empty()) {
    place = free_.back();
    free_.pop_back();
  } else if (known_.size() < kWords) {
    place = static_cast<uint32_t>(known_.size());
    known_.emplace_back();
  } else {
    place = oldest_;
    oldest_ = (oldest_ + 1) % kWords;
    forget(place);
    free_.pop_back();
  }
  known_[place] = {&device, index, handle, next_name(place)};
  found_.emplace(key, place);
  words_[place].store(known_[place].name, std::memory_order_release);
  return known_[place].name;
}

uint64_t Exports::name(const Device& device, int index, const hcd_ipc_handle& handle, Last& last) {
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  if (last.epoch == epoch && last.device == &device && last.index == index &&
      std::memcmp(last.handle.bytes, handle.bytes, sizeof handle.bytes) == 0)
    return last.name;
  // The epoch may be older than the name: then the next call repeats the lookup.
  last = {&device, index, handle, name(device, index, handle), epoch};
  return last.name;
}

uint64_t Exports::name(std::span<const uint64_t> names) {
  if (names.size() == 1) return names.front();
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      lists_, [&](const List& list) { return std::ranges::equal(list.names, names); });
  if (known != lists_.end()) return known->name;
  if (lists_.size() == kMostLists) lists_.pop_back();
  lists_.push_front({{names.begin(), names.end()}, next_name(0)});
  return lists_.front().name;
}

void Exports::look() {
  const std::lock_guard lock(mutex_);
  ask();
}

void Exports::ask() {
  for (size_t i = std::min(kAsked, known_.size()); i > 0; --i) {
    asked_ = (asked_ + 1) % known_.size();
    const Known& known = known_[asked_];
    if (known.device != nullptr && !known.device->still_exported(known.index, known.handle))
      forget(static_cast<uint32_t>(asked_));
  }
}

void Exports::forget(uint32_t place) {
  Known& known = known_[place];
  words_[place].store(0, std::memory_order_release);
  const auto [begin, end] = found_.equal_range(hash(*known.device, known.index, known.handle));
  found_.erase(std::find_if(begin, end, [&](const auto& one) { return one.second == place; }));
  known = {};
  free_.push_back(place);
  epoch_.fetch_add(1, std::memory_order_acq_rel);
}

size_t Exports::size() const {
  const std::lock_guard lock(mutex_);
  return known_.size() - free_.size();
}

}  // namespace hccl_like
