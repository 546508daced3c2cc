#include "transport/same_host/local_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/error.h"
#include "core/machine/fence.h"
#include "transport/network/process_record.h"

namespace hccl_like {
namespace {

Fd open_process(int pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

std::unique_ptr<LocalPeer> LocalPeer::meet(const ProcessRecord& record, Commons& own,
                                           const Bell& bell, Poller& poller) {
  if (!record.commons || record.pid <= 0 || record.pid > INT32_MAX) return nullptr;
  const std::string path =
      "/proc/" + std::to_string(record.pid) + "/fd/" + std::to_string(*record.commons);
  Fd memory(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!memory.valid()) return nullptr;
  try {
    PeerCommons commons(std::move(memory));
    if (!commons.belongs_to(record.id)) return nullptr;
    return std::unique_ptr<LocalPeer>(
        new LocalPeer(std::move(commons), static_cast<int>(record.pid),
                      Bell::place(bell_name(record.unix_name)), own, bell, poller));
  } catch (const Exception&) {
    return nullptr;
  }
}

LocalPeer::LocalPeer(PeerCommons commons, int pid, Bell::Place place, Commons& own,
                     const Bell& bell, Poller& poller)
    : commons_(std::move(commons)),
      pid_(pid),
      place_(place),
      own_(own),
      bell_(bell),
      poller_(poller),
      // Recent aborts may concern the group in which the two processes meet.
      seen_(commons_.given_up() - std::min(commons_.given_up(), CommonsNotes::kReasons)) {}

LocalPeer::~LocalPeer() { poller_.forget(process_.get()); }

void LocalPeer::send_abort(uint64_t communicator, std::string_view reason) {
  own_.give_up(communicator, reason);
  full_fence();
  nudge();
}

std::optional<AbortNotice> LocalPeer::take_abort() {
  const uint32_t last = commons_.given_up();
  if (last == seen_) return std::nullopt;
  // Overwritten aborts are lost: calls of those communicators time out.
  if (last - seen_ > CommonsNotes::kGivenUp) seen_ = last - CommonsNotes::kGivenUp;
  const uint32_t number = seen_++;
  return AbortNotice{commons_.given_up(number), commons_.reason(number)};
}

bool LocalPeer::look_for_end() {
  if (gone_ || said_goodbye() || commons_.owner_died()) return gone_ = true;
  const Fd process = open_process(pid_);
  if (!process.valid()) {
    gone_ = errno == ESRCH;
    return gone_;
  }
  pollfd one{process.get(), POLLIN, 0};
  gone_ = ::poll(&one, 1, 0) > 0;
  return gone_;
}

bool LocalPeer::guard() {
  if (process_.valid() || gone_) return false;
  process_ = open_process(pid_);
  if (process_.valid()) poller_.watch(process_.get(), EPOLLIN, *this);
  return process_.valid();
}

void LocalPeer::ready(unsigned) {
  poller_.forget(process_.get());
  process_.reset();
  gone_ = true;
}

}  // namespace hccl_like
