#include "memory/faults.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace torch_sim {
namespace {

constexpr int kFrames = 40;

// Handlers that ours calls: the first one was installed before ours, the others replaced ours
// later.
struct Below {
  static constexpr int kMost = 8;  // the last place is that of the latest
  int signal;
  std::array<struct sigaction, kMost> actions{};
  std::atomic<int> count{0};
};
Below below[] = {{SIGSEGV}, {SIGBUS}};
const AddressSpace* watched = nullptr;
unsigned long long told_seed = 0;
std::atomic<void*> told{nullptr};  // the last address; a handler below may bring the signal back

// In a signal handler, too: no locks, no memory.
void report(const char* text, int length) {
  const char* const path = std::getenv("TORCH_SIM_STRICT_REPORT");
  if (path == nullptr || *path == 0) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  (void)!write(file, text, static_cast<size_t>(length));
  close(file);
}

void tell(void* at) {
  const bool followed = watched->holds(at);
  const void* device_address = followed ? at : watched->to_device(at);
  const int device = watched->device_of(device_address);
  char text[400];
  const int length = std::snprintf(
      text, sizeof text,
      "sim: the host touched memory of sim:%d at %p %s. %s=%llu; it was touched "
      "here:\n",
      device, device_address,
      followed ? "by its device address, which only the device can follow"
               : "outside of any operation of the device that works on it, and while "
                 "nobody had mapped it",
      told_seed != 0 ? "TORCH_SIM_STRICT" : "TORCH_SIM_DISCRETE", told_seed != 0 ? told_seed : 1);
  report(text, length);
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) return;
  void* frames[kFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
}

// A handler on top of ours may have raised the signal again instead of letting the access be made
// again. Then the signal has no address, but the processor still knows it.
void* address_of(const siginfo_t& info, [[maybe_unused]] const void* context) {
  if (info.si_code > 0) return info.si_addr;
#ifdef __x86_64__
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return reinterpret_cast<void*>(registers[REG_CR2]);
#else
  return nullptr;
#endif
}

// Tells, and leaves the end of the process to the handler below: the access is made again, a signal
// that was sent is raised again.
void on_fault(int signal, siginfo_t* info, void* context) {
  void* const at = address_of(*info, context);
  if ((watched->holds(at) || watched->holds_kernel(at)) && told.exchange(at) != at) tell(at);
  Below& rest = below[signal == SIGBUS];
  struct sigaction next {};
  next.sa_handler = SIG_DFL;
  if (const int left = rest.count.fetch_sub(1); left > 0) next = rest.actions[left - 1];
  sigaction(signal, &next, nullptr);
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void stay_on_top() {
  for (Below& rest : below) {
    struct sigaction now {};
    sigaction(rest.signal, nullptr, &now);
    if (now.sa_sigaction == on_fault || rest.count < 0) continue;
    if (rest.count < Below::kMost) ++rest.count;
    rest.actions[rest.count - 1] = now;
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(rest.signal, &ours, nullptr);
  }
}

void watch_faults(const AddressSpace& space, uint64_t seed) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs, which a handler must not
  watched = &space;
  told_seed = seed;
  stay_on_top();
  char text[80];
  report(text, std::snprintf(text, sizeof text, "sim: device memory is protected in process %d\n",
                             getpid()));
}

}  // namespace torch_sim
