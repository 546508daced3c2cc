#pragma once
// Names of the memory that peers may map, and words that tell whether that memory still exists.
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

// Each handle of an allocation (compared as a whole) gets a unique name at its first export. A peer
// caches a mapping by name and closes it when the name's word has another value. Any thread. The
// devices must outlive this object.
class Exports {
 public:
  // Beyond this limit the oldest name is dropped; its memory gets a new name with the next call.
  static constexpr uint32_t kWords = 1024;
  using Words = std::array<std::atomic<uint64_t>, kWords>;
  // Maximum per look().
  static constexpr size_t kAsked = 64;

  // `words` are zero, readable by peers, and must outlive this object.
  explicit Exports(Words& words);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // Returns the name of what `device` exported as `handle`, never 0. A new name implies a look().
  uint64_t name(const Device& device, int index, const hcd_ipc_handle& handle);

  // One caller's last name. The next call for the same memory takes no lock. One thread at a time.
  struct Last {
    const Device* device = nullptr;
    int index = 0;
    hcd_ipc_handle handle{};
    uint64_t name = 0;
    uint64_t epoch = 0;
  };
  uint64_t name(const Device& device, int index, const hcd_ipc_handle& handle, Last& last);

  // One name for a sequence of at least one allocation. It has no word.
  uint64_t name(std::span<const uint64_t> names);

  // Checks some exports in turn and clears the words of freed ones.
  void look();
  size_t size() const;

  // Whether the owner still has the memory with this name.
  static bool holds(const Words& words, uint64_t name) {
    return name != 0 && words[name % kWords].load(std::memory_order_acquire) == name;
  }

 private:
  struct Known {
    const Device* device = nullptr;  // null: the entry is free
    int index = 0;
    hcd_ipc_handle handle{};
    uint64_t name = 0;
    bool is(const Device& other, int other_index, const hcd_ipc_handle& other_handle) const;
  };
  static uint64_t hash(const Device& device, int index, const hcd_ipc_handle& handle);

  // Require mutex_.
  void ask();
  void forget(uint32_t place);
  uint64_t next_name(uint32_t place) { return ++generation_ * kWords + place; }

  Words& words_;
  mutable std::mutex mutex_;
  std::vector<Known> known_;                           // by place: the name modulo kWords
  std::unordered_multimap<uint64_t, uint32_t> found_;  // places, by hash
  std::vector<uint32_t> free_;                         // places
  uint32_t oldest_ = 0;  // the entry that is taken next if none is free
  size_t asked_ = 0;     // the entry that is checked next
  uint64_t generation_;
  std::atomic<uint64_t> epoch_;  // grows whenever a name is lost
  struct List {
    std::vector<uint64_t> names;
    uint64_t name = 0;
  };
  std::deque<List> lists_;  // the last few, newest first
};

}  // namespace hccl_like
