#pragma once
// An object pool without allocation in the steady state.
#include <memory>
#include <vector>

namespace hccl_like {

// Owns all objects. take() does not reset an object.
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
  void give_back(T* object) {
    if (object != nullptr) free_.push_back(object);
  }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace hccl_like
