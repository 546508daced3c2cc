#include "core/crash_note.h"

#include <unistd.h>

#include <utility>

namespace hccl_like {

std::atomic<CrashNote*> CrashNote::current_{nullptr};

CrashNote::CrashNote(std::string line) : line_(std::move(line)), thread_(::gettid()) {
  CrashNote* none = nullptr;
  if (!current_.compare_exchange_strong(none, this)) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_NODEFER;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

CrashNote::~CrashNote() {
  if (current_ != this) return;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  current_ = nullptr;
}

// Only what is allowed in a signal handler. Returning repeats the access that failed, with the handler that was there
// before; an abort() and a signal that was sent don't repeat themselves, so the signal is raised again.
void CrashNote::on_signal(int number) {
  CrashNote* const note = current_;
  if (note == nullptr) return;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &note->before_[i], nullptr);
  if (::gettid() == note->thread_)
    (void)!::write(STDERR_FILENO, note->line_.data(), note->line_.size());
  ::raise(number);
}

}  // namespace hccl_like
