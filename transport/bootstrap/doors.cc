#include "transport/bootstrap/doors.h"

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

Doors::Doors() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) throw_system("cannot create an epoll set");
}

Listener& Doors::add(Listener listener) {
  control(epoll_.get(), EPOLL_CTL_ADD, listener.fd());
  return listeners_.emplace_back(std::move(listener));
}

Doors::Meeting::Meeting(Doors& doors) : doors_(doors) {
  std::lock_guard lock(doors_.mutex_);
  doors_.open_outside();
  ++doors_.meetings_;
}

Doors::Meeting::~Meeting() {
  std::lock_guard lock(doors_.mutex_);
  if (--doors_.meetings_ > 0 || doors_.needed_) return;
  try {
    doors_.shut_outside();
  } catch (const std::exception& exception) {
    log_warn(std::string("a door that nobody needs stays open: ") + exception.what());
  }
}

void Doors::Meeting::others_come() {
  std::lock_guard lock(doors_.mutex_);
  doors_.needed_ = true;
}

void Doors::open_outside() {
  if (!std::exchange(shut_, false)) return;
  for (Listener& one : listeners_) {
    if (one.is_local()) continue;
    one.listen();
    control(epoll_.get(), EPOLL_CTL_ADD, one.fd());
  }
}

// Where no address is this host's alone, its ranks need the others.
void Doors::shut_outside() {
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
