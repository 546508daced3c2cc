#pragma once
// Objects that are used again, so that a warm program allocates none.
#include <memory>
#include <vector>

namespace hccl_like {

// Owns them all. What is taken has the value that it had when it was given back.
template <class T>
class Pool {
 public:
  T* take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      free_.reserve(all_.size());
      return all_.back().get();
    }
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  // Null is nothing.
  void give_back(T* object) {
    if (object != nullptr) free_.push_back(object);
  }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace hccl_like
