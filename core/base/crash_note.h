#pragma once
// Says whose fault it is if this thread crashes the process while foreign code runs.
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <string>

namespace hccl_like {

// While it lives, a signal that ends the process (a bad address, an abort) first writes `line` to
// standard error, if it hit the thread that made this; then it takes its course, with the handler
// that was there before. A handler that the foreign code puts in our place stays. Beside another
// note in the process it does nothing. Not for the data path.
class CrashNote {
 public:
  explicit CrashNote(std::string line);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  static void on_signal(int number, siginfo_t* info, void* context);

  const std::string line_;
  const pid_t thread_;
  static std::atomic<CrashNote*> current_;
};

}  // namespace hccl_like
