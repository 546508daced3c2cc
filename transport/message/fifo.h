#pragma once
// A queue without allocation in the steady state (std::deque allocates block by block).
#include <cstddef>
#include <utility>
#include <vector>

namespace hccl_like {

template <class T>
class Fifo {
 public:
  bool empty() const noexcept { return size_ == 0; }
  size_t size() const noexcept { return size_; }
  T& front() noexcept { return slots_[first_]; }

  void push(T value) {
    if (size_ == slots_.size()) grow();
    slots_[(first_ + size_++) & (slots_.size() - 1)] = std::move(value);
  }
  T pop() {
    T value = std::move(slots_[first_]);
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }
  // Keeps the order of the other elements.
  template <class Predicate>
  void erase_if(Predicate predicate) {
    for (size_t left = size_; left > 0; --left) {
      T value = pop();
      if (!predicate(std::as_const(value))) push(std::move(value));
    }
  }

 private:
  void grow() {
    std::vector<T> larger(2 * slots_.size());
    for (size_t i = 0; i < size_; ++i)
      larger[i] = std::move(slots_[(first_ + i) & (slots_.size() - 1)]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_ = std::vector<T>(16);  // a power of two
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace hccl_like
