#include "transport/bootstrap/listeners.h"

#include <sys/epoll.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

void control(int epoll, int operation, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll, operation, fd, &event) != 0)
    throw_system("cannot watch a listening socket");
}

}  // namespace

Listeners::Listeners() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) throw_system("cannot create an epoll set");
}

Listener& Listeners::add(Listener listener) {
  control(epoll_.get(), EPOLL_CTL_ADD, listener.fd());
  return listeners_.emplace_back(std::move(listener));
}

Listeners::Rendezvous::Rendezvous(Listeners& listeners) : listeners_(listeners) {
  std::lock_guard lock(listeners_.mutex_);
  listeners_.open_outside();
  ++listeners_.meetings_;
}

Listeners::Rendezvous::~Rendezvous() {
  std::lock_guard lock(listeners_.mutex_);
  if (--listeners_.meetings_ > 0 || listeners_.needed_) return;
  try {
    listeners_.shut_outside();
  } catch (const std::exception& exception) {
    log_warn(std::string("a listener that nobody needs stays open: ") + exception.what());
  }
}

void Listeners::Rendezvous::others_come() {
  std::lock_guard lock(listeners_.mutex_);
  listeners_.needed_ = true;
}

void Listeners::open_outside() {
  if (!std::exchange(shut_, false)) return;
  for (Listener& one : listeners_) {
    if (one.is_local()) continue;
    one.listen();
    control(epoll_.get(), EPOLL_CTL_ADD, one.fd());
  }
}

// Without a loopback listener the ranks of this host need the external ones.
void Listeners::shut_outside() {
  const bool any_local = std::ranges::any_of(
      listeners_, [](const Listener& one) { return one.port() != 0 && one.is_local(); });
  if (!any_local || std::exchange(shut_, true)) return;
  for (Listener& one : listeners_) {
    if (one.is_local()) continue;
    control(epoll_.get(), EPOLL_CTL_DEL, one.fd());
    one.refuse();
  }
}

}  // namespace hccl_like
