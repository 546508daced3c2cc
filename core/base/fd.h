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

  // -1 when empty. Stays owned by this object.
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  // Gives the descriptor to the caller and is empty afterwards.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  // Closes what it holds and takes `fd`. close() is not repeated on EINTR: Linux has closed the
  // descriptor by then, and another thread may own the number.
  void reset(int fd = -1) noexcept {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace hccl_like
