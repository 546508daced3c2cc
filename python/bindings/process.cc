#include "python/bindings/process.h"

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

void close_all_groups() {
  if (const auto session = current_session()) session->close_all();
}

}  // namespace hccl_like
