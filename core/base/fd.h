#pragma once
// Owner of a file descriptor.
#include <unistd.h>

#include <utility>

namespace hccl_like {

class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  // -1 when empty. The object keeps ownership.
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  // Transfers ownership to the caller.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  // Closes the old descriptor and takes `fd`. Does not retry close() on EINTR: Linux has already
  // closed the descriptor, and another thread may own the number.
  void reset(int fd = -1) noexcept {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace hccl_like
