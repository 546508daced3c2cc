#include "python/bindings/process.h"

#include <cstdio>
#include <cstdlib>

#include "process_group/backend/backend.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/diagnosis/untold.h"

namespace hccl_like {

Process& process() {
  static auto& the_process = *new Process();
  return the_process;
}

std::shared_ptr<Session> join_session() {
  Process& all = process();
  std::lock_guard lock(all.mutex);
  return Session::join(all.session, all.devices, all.recorder, all.transports);
}

std::shared_ptr<Session> current_session() {
  Process& all = process();
  std::lock_guard lock(all.mutex);
  auto session = all.session.lock();
  return session && !session->forked() ? session : nullptr;
}

namespace {

// Replaces exit status 0 by 1. exit() in a handler continues with the remaining handlers.
void fail_at_exit() {
  static const bool registered [[maybe_unused]] = on_exit(
                                                      [](int status, void*) {
                                                        if (status == 0) std::exit(1);
                                                      },
                                                      nullptr) == 0;
}

}  // namespace

void close_all_groups(const std::string& reason) {
  if (const auto session = current_session()) close_all(*session, reason);
  const auto error = take_untold();
  if (!error) return;
  const std::string line = "hccl-like [" + label(*error) +
                           "]: a call failed that nobody has waited for, and what it should have "
                           "written is not to be used: " +
                           to_string(*error) + "\n";
  std::fputs(line.c_str(), stderr);
  fail_at_exit();
}

void tell_untold_failure() {
  if (const auto session = current_session())
    session->each([](Backend& backend) { backend.look_for_failures(); });
  if (const auto error = take_untold())
    throw_torch_error(*error, "hccl-like: a call that nobody has waited for");
}

}  // namespace hccl_like
