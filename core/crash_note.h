#pragma once
// Says whose fault it is if this thread crashes the process while foreign code runs.
#include <sys/types.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string>

namespace hccl_like {

// While it lives, a signal that ends the process (a bad address, an abort) first writes `line` to standard error, if it
// hit the thread that made this; then it takes its course. Beside another one in the process it does nothing. Not for the
// data path.
class CrashNote {
 public:
  explicit CrashNote(std::string line);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  static void on_signal(int number);

  const std::string line_;
  const pid_t thread_;
  std::array<struct sigaction, kSignals.size()> before_{};
  static std::atomic<CrashNote*> current_;
};

}  // namespace hccl_like
