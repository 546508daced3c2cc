#pragma once
// A hash table from Tag to a value: open addressing, no allocation in the steady state.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/message/message.h"

namespace hccl_like {

// Pointers to values stay valid until the next insert or erase.
template <class Value>
class TagTable {
 public:
  size_t size() const noexcept { return size_; }

  Value* find(const Tag& tag) noexcept {
    const size_t i = position(tag);
    return slots_[i].used ? &slots_[i].value : nullptr;
  }
  const Value* find(const Tag& tag) const noexcept {
    const size_t i = position(tag);
    return slots_[i].used ? &slots_[i].value : nullptr;
  }

  // Requires that the tag is absent.
  Value& insert(const Tag& tag, Value value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[position(tag)];
    slot = {.tag = tag, .used = true, .value = std::move(value)};
    ++size_;
    return slot.value;
  }

  // No-op if the tag is absent.
  void erase(const Tag& tag) noexcept {
    size_t hole = position(tag);
    if (!slots_[hole].used) return;
    // Close the gap: later entries of the probe sequence move back.
    for (size_t i = next(hole); slots_[i].used; i = next(i)) {
      const size_t home = hash(slots_[i].tag) & mask();
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    slots_[hole] = {};
    --size_;
  }

  // Calls visit(tag, value&) for each entry, in no order. Erases the entry if visit returns true.
  template <class Visit>
  void erase_if(Visit visit) {
    std::vector<Tag> gone;
    for (Slot& slot : slots_)
      if (slot.used && visit(std::as_const(slot.tag), slot.value)) gone.push_back(slot.tag);
    for (const Tag& tag : gone) erase(tag);
  }

  // Whether test(value) holds for any entry. Linear in the capacity.
  template <class Test>
  bool any_of(Test test) const {
    return std::ranges::any_of(slots_,
                               [&](const Slot& slot) { return slot.used && test(slot.value); });
  }

 private:
  struct Slot {
    Tag tag{};
    bool used = false;
    Value value{};
  };

  static size_t hash(const Tag& tag) noexcept {
    uint64_t h = tag.communicator ^ (uint64_t{tag.channel} << 32 | tag.sequence);
    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h += uint64_t{tag.slice} << 32 | uint32_t{tag.round} << 16 | tag.occurrence;
    h *= 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
  }
  size_t mask() const noexcept { return slots_.size() - 1; }
  size_t next(size_t i) const noexcept { return (i + 1) & mask(); }
  // Slot of the tag, or the free slot for it.
  size_t position(const Tag& tag) const noexcept {
    size_t i = hash(tag) & mask();
    while (slots_[i].used && !(slots_[i].tag == tag)) i = next(i);
    return i;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old)
      if (slot.used) slots_[position(slot.tag)] = std::move(slot);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace hccl_like
