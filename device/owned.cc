#include "device/owned.h"

#include <utility>

#include "core/base/log.h"
#include "device/device.h"

namespace hccl_like {

template <class Handle>
Owned<Handle>::Owned(Owned&& other) noexcept {
  *this = std::move(other);
}

template <class Handle>
Owned<Handle>& Owned<Handle>::operator=(Owned&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::exchange(other.device_, nullptr);
  close_ = other.close_;
  closing_ = other.closing_;
  index_ = other.index_;
  handle_ = std::exchange(other.handle_, Handle{});
  return *this;
}

template <class Handle>
Owned<Handle>::~Owned() {
  reset();
}

template <class Handle>
void Owned<Handle>::reset() noexcept {
  if (device_ == nullptr) return;
  const int status = close_(index_, handle_);
  if (const auto error = device_->check(status, index_, closing_)) log_warn(error->message);
  device_ = nullptr;
  handle_ = Handle{};
}

template class Owned<void*>;
template class Owned<uint64_t>;

}  // namespace hccl_like
