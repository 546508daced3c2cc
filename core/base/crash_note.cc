#include "core/base/crash_note.h"

#include <unistd.h>

#include <array>
#include <utility>

namespace hccl_like {
namespace {

constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// The previous handler. Never freed: a handler installed over ours may call it later.
struct Below {
  struct sigaction action {};
  bool stays = false;  // a foreign handler was installed over ours
};
std::array<Below, kSignals.size()> below;

struct sigaction current_action(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action;
}

}  // namespace

std::atomic<CrashNote*> CrashNote::current_{nullptr};

CrashNote::CrashNote(std::string line) : line_(std::move(line)), thread_(::gettid()) {
  CrashNote* none = nullptr;
  if (!current_.compare_exchange_strong(none, this)) return;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (!below[i].stays) ::sigaction(kSignals[i], &action, &below[i].action);
  }
}

CrashNote::~CrashNote() {
  if (current_ != this) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    below[i].stays = current_action(kSignals[i]).sa_sigaction != on_signal;
    if (!below[i].stays) ::sigaction(kSignals[i], &below[i].action, nullptr);
  }
  current_ = nullptr;
}

// Async-signal-safe. A return repeats a faulting access under the restored handler, which then sees
// the address. abort() and sent signals do not repeat.
void CrashNote::on_signal(int number, siginfo_t* info, void*) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == number || current_action(kSignals[i]).sa_sigaction == on_signal)
      ::sigaction(kSignals[i], &below[i].action, nullptr);
  }
  CrashNote* const note = current_;
  if (note != nullptr && ::gettid() == note->thread_)
    (void)!::write(STDERR_FILENO, note->line_.data(), note->line_.size());
  if (info->si_code <= 0) ::raise(number);
}

}  // namespace hccl_like
