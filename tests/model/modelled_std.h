#pragma once
// Included before everything else when code is compiled to be explored: within hccl_like,
// std::atomic and std::atomic_thread_fence are then modelled ones, and everything else of std is
// what it always is. So the very files that ship are explored, and none of them knows.
//
// An atomic is as large as a real one, and holds the number of its location, not its value. So it
// may lie in shared memory that is mapped twice. One that lies in zeroed memory, not constructed,
// gets its location when it is first touched. One that is stored to while nothing is explored keeps
// a value as any variable does, and is not explored.
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <vector>

#include "tests/model/explorer.h"

namespace hccl_like::model {

template <class T>
class Atomic {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Number = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Where = std::source_location;

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  Atomic() noexcept : Atomic(T{}) {}
  Atomic(T value) noexcept {
    if (Explorer::active() != nullptr) number_ = Explorer::active()->add(to_word(value)) + 1;
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst,
         Where where = Where::current()) const noexcept {
    if (is_kept()) return to_value(kept()[number_ & ~kKept]);
    return to_value(Explorer::active()->load(location(), order, where));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst,
             Where where = Where::current()) noexcept {
    if (Explorer::active() == nullptr && !is_kept()) {
      number_ = static_cast<Number>(kKept | kept().size());
      kept().push_back(0);
    }
    if (is_kept())
      kept()[number_ & ~kKept] = to_word(value);
    else
      Explorer::active()->store(location(), to_word(value), order, where);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst,
             Where where = Where::current()) noexcept {
    return change([value](T) { return value; }, order, where);
  }
  T fetch_add(T more, std::memory_order order = std::memory_order_seq_cst,
              Where where = Where::current()) noexcept {
    return change([more](T old) { return static_cast<T>(old + more); }, order, where);
  }
  T fetch_sub(T less, std::memory_order order = std::memory_order_seq_cst,
              Where where = Where::current()) noexcept {
    return change([less](T old) { return static_cast<T>(old - less); }, order, where);
  }
  T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst,
             Where where = Where::current()) noexcept {
    return change([bits](T old) { return static_cast<T>(old | bits); }, order, where);
  }
  // One that fails stores what was there, with the order of success: fails less often and sees more
  // than a real one.
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order,
                             Where where = Where::current()) noexcept {
    const uint64_t wanted = to_word(expected);
    expected =
        change([&](T old) { return to_word(old) == wanted ? desired : old; }, success, where);
    return to_word(expected) == wanted;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order,
                             Where where = Where::current()) noexcept {
    return compare_exchange_weak(expected, desired, order, order, where);
  }
  operator T() const noexcept { return load(); }
  T operator=(T value) noexcept {
    store(value);
    return value;
  }

 private:
  static constexpr Number kKept = Number{1} << (8 * sizeof(Number) - 1);
  bool is_kept() const { return (number_ & kKept) != 0; }
  static ::std::vector<uint64_t>& kept() {
    static ::std::vector<uint64_t> values;
    return values;
  }
  static uint64_t to_word(T value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
  }
  static T to_value(uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
  template <class Change>
  T change(Change change, std::memory_order order, const Where& where) {
    return to_value(Explorer::active()->exchange(
        location(), [&](uint64_t old) { return to_word(change(to_value(old))); }, order, where));
  }
  Location location() const {
    if (number_ == 0) number_ = static_cast<Number>(Explorer::active()->add(0) + 1);
    return static_cast<Location>(number_ - 1);
  }

  mutable Number number_ = 0;
};

inline void modelled_fence(std::memory_order order,
                           std::source_location where = std::source_location::current()) noexcept {
  if (Explorer::active() != nullptr) Explorer::active()->fence(order, where);
}

// Stands for ordinary memory that threads share, and whose accesses must be ordered by what is
// modelled.
class Plain {
 public:
  Plain() : location_(Explorer::active()->add_plain()) {}
  void write(std::source_location where = std::source_location::current()) {
    Explorer::active()->plain(location_, true, where);
  }
  void read(std::source_location where = std::source_location::current()) {
    Explorer::active()->plain(location_, false, where);
  }

 private:
  Location location_;
};

}  // namespace hccl_like::model

#ifdef HCCL_LIKE_MODELLED
namespace hccl_like::std {
using namespace ::std;
// A smaller one has no place for a number; none of those is shared in what is explored.
template <class T>
using atomic =
    ::std::conditional_t<sizeof(T) == 4 || sizeof(T) == 8, model::Atomic<T>, ::std::atomic<T>>;
inline void atomic_thread_fence(std::memory_order order,
                                source_location where = source_location::current()) noexcept {
  model::modelled_fence(order, where);
}
}  // namespace hccl_like::std
#endif
