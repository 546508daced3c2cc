#pragma once
// Names the foreign code to blame if this thread crashes inside it.
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <string>

namespace hccl_like {

// While the object lives, a fatal signal on the creating thread first writes `line` to standard
// error. The previous handler then runs. A handler that the foreign code installs stays in place. A
// second note in the process has no effect. Not for the data path.
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
