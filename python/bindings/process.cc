#include "python/bindings/process.h"

namespace hccl_like {

Process& process() {
  static auto& the_process = *new Process();
  return the_process;
}

std::shared_ptr<Session> join_session() {
  Process& all = process();
  std::lock_guard lock(all.mutex);
  return Session::join(all.session, all.devices);
}

void close_all_groups() {
  Process& all = process();
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(all.mutex);
    session = all.session.lock();
  }
  if (session && !session->forked()) session->close_all();
}

}  // namespace hccl_like
