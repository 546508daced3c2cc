#pragma once
// For tests of what processes see of each other.
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace hccl_like {

// A forked process that does nothing, and keeps what memory there was, until it is told to end. One thread.
class IdleChild {
 public:
  IdleChild() {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe can be had");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process can be had");
    if (pid_ == 0) {
      char byte;
      ::close(ends_[1]);
      ::_exit(::read(ends_[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;
  ~IdleChild() { end(); }

  pid_t pid() const { return pid_; }

  // Waits for its end; its status as waitpid() has it, -1 if it had ended before.
  int end() {
    if (over_) return -1;
    over_ = true;
    ::close(ends_[0]);
    ::close(ends_[1]);
    int status = -1;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
  bool over_ = false;
};

}  // namespace hccl_like
