#pragma once
// The holder of objects that Python owns.
#include <torch/csrc/utils/pybind.h>

namespace hccl_like {

// An intrusive pointer that releases the GIL before the object: leaving a group waits for other
// ranks and joins threads that may need the GIL. pybind11 requires the size and content of c10's
// intrusive_ptr, because it passes the object as its base class.
template <class T>
class GilFreePointer {
 public:
  GilFreePointer() = default;
  GilFreePointer(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}
  explicit GilFreePointer(T* owned)
      : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(owned)) {}
  GilFreePointer(const GilFreePointer&) = default;
  GilFreePointer(GilFreePointer&&) noexcept = default;
  GilFreePointer& operator=(const GilFreePointer&) = default;
  GilFreePointer& operator=(GilFreePointer&&) noexcept = default;
  ~GilFreePointer() {
    if (!pointer_) return;
    if (PyGILState_Check()) {
      pybind11::gil_scoped_release release;
      pointer_.reset();
    } else {
      pointer_.reset();
    }
  }

  T* get() const noexcept { return pointer_.get(); }
  T& operator*() const noexcept { return *pointer_; }
  T* operator->() const noexcept { return pointer_.get(); }
  operator c10::intrusive_ptr<T>() const { return pointer_; }

 private:
  c10::intrusive_ptr<T> pointer_;
};

}  // namespace hccl_like

PYBIND11_DECLARE_HOLDER_TYPE(T, hccl_like::GilFreePointer<T>, true)
