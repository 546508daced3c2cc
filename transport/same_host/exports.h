#pragma once
// Names for the memory that this process lets peers map, and words that tell peers which of that
// memory still exists.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace hccl_like {

// Every handle of an allocation gets a name when it is first exported. A name is never given twice,
// whatever the device's handles are like: handles are compared as a whole. A peer knows a mapping
// again by its name, and closes the mapping when the name's word holds another value.
//
// Any thread. The devices must outlive this object.
class Exports {
 public:
  // More allocations than this are not named at once: the oldest loses its name, and gets a new one
  // with its next call.
  static constexpr uint32_t kWords = 1024;
  using Words = std::array<std::atomic<uint64_t>, kWords>;
  // Exports that one look() asks about at most.
  static constexpr size_t kAsked = 64;

  // `words` are zeros, read by peers, and must outlive this object.
  explicit Exports(Words& words);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // The name of what `device` exported as `handle`. Never 0. A new name comes after a look().
  uint64_t name(const Device& device, int index, const hcd_ipc_handle& handle);

  // What one caller named last, so that the next call on the same memory takes no lock. One thread
  // at a time.
  struct Last {
    const Device* device = nullptr;
    int index = 0;
    hcd_ipc_handle handle{};
    uint64_t name = 0;
    uint64_t epoch = 0;
  };
  uint64_t name(const Device& device, int index, const hcd_ipc_handle& handle, Last& last);

  // One name for several allocations in this order, at least one. It has no word.
  uint64_t name(std::span<const uint64_t> names);

  // Asks the devices about some exports in turn, and clears the words of those that were freed.
  void look();
  // Named now.
  size_t size() const;

  // Whether the name's owner still has the memory.
  static bool holds(const Words& words, uint64_t name) {
    return name != 0 && words[name % kWords].load(std::memory_order_acquire) == name;
  }

 private:
  struct Known {
    const Device* device = nullptr;  // null: the place is free
    int index = 0;
    hcd_ipc_handle handle{};
    uint64_t name = 0;
    bool is(const Device& other, int other_index, const hcd_ipc_handle& other_handle) const;
  };
  static uint64_t hash(const Device& device, int index, const hcd_ipc_handle& handle);

  // With mutex_ held.
  void ask();
  void forget(uint32_t place);
  uint64_t next_name(uint32_t place) { return ++generation_ * kWords + place; }

  Words& words_;
  mutable std::mutex mutex_;
  std::vector<Known> known_;                           // by place: the name modulo kWords
  std::unordered_multimap<uint64_t, uint32_t> found_;  // places, by hash
  std::vector<uint32_t> free_;                         // places
  uint32_t oldest_ = 0;  // the place that is taken next if none is free
  size_t asked_ = 0;     // the place that is asked about next
  uint64_t generation_;
  std::atomic<uint64_t> epoch_;  // grows whenever a name is lost
  struct List {
    std::vector<uint64_t> names;
    uint64_t name = 0;
  };
  std::deque<List> lists_;  // the last few, newest first
};

}  // namespace hccl_like
