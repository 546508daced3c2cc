#include "transport/wire/watched_wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace hccl_like {
namespace {

// Keep-alive: 1 s of silence, then three probes 1 s apart. Outages up to 2 s are tolerated.
constexpr int kLifelineIdleSeconds = 1, kLifelineProbeSeconds = 1, kLifelineProbes = 3;
// Time for the peer's last bytes. They are in this host's buffers or never arrive.
constexpr std::chrono::milliseconds kLastWords{250};

void set_lifeline_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

WatchedWire::WatchedWire(std::unique_ptr<Wire> wire, Poller& poller, std::string peer,
                         std::shared_ptr<bool> broke)
    : WireWrapper(std::move(wire)),
      poller_(poller),
      peer_(std::move(peer)),
      broke_(std::move(broke)) {}

WatchedWire::~WatchedWire() {
  if (lifeline_.valid()) poller_.forget(lifeline_.get());
}

bool WatchedWire::misses_lifeline() const {
  return !lifeline_.valid() && !ended_ && wire().failure() == nullptr;
}

void WatchedWire::attach(Fd socket) {
  if (lifeline_.valid()) poller_.forget(lifeline_.get());
  lifeline_ = std::move(socket);
  set_lifeline_option(lifeline_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_lifeline_option(lifeline_.get(), IPPROTO_TCP, TCP_KEEPIDLE, kLifelineIdleSeconds);
  set_lifeline_option(lifeline_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kLifelineProbeSeconds);
  set_lifeline_option(lifeline_.get(), IPPROTO_TCP, TCP_KEEPCNT, kLifelineProbes);
  // There are no probes while bytes of the handshake are unacknowledged.
  set_lifeline_option(lifeline_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT,
                      1000 * (kLifelineIdleSeconds + kLifelineProbes * kLifelineProbeSeconds));
  poller_.watch(lifeline_.get(), EPOLLIN, *this);
}

void WatchedWire::ready(unsigned) {
  std::byte nothing;
  const ssize_t got = ::recv(lifeline_.get(), &nothing, sizeof nothing, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
  const std::string why = got == 0              ? "its process has ended"
                          : errno == ETIMEDOUT  ? "its host does not answer any more"
                          : errno == ECONNRESET ? "its process or host has ended"
                                                : errno_text(errno);
  poller_.forget(lifeline_.get());
  lifeline_.reset();
  if (got == 0 || broke_ == nullptr) return give_up(why);
  cause_ = why;
  *broke_ = true;
}

void WatchedWire::give_up(const std::string& why) {
  if (ended_) return;
  ended_ = Error{ErrorCode::kPeerLost, "the " + std::string(transport()) + " connection to " +
                                           peer_ + " is gone: " + why};
  wait_for_more();
}

std::span<const std::byte> WatchedWire::peek(size_t want) {
  const auto view = wire().peek(want);
  has_bytes_ = view.size() >= want;
  return view;
}

size_t WatchedWire::read(std::span<std::byte> into) {
  const size_t done = wire().read(into);
  has_bytes_ = done > 0;
  if (done > 0) wait_for_more();
  return done;
}

void WatchedWire::release(size_t bytes) {
  wire().release(bytes);
  wait_for_more();
}

void WatchedWire::wait_for_more() {
  if (ended_) timeout_ = Deadline::after(kLastWords);
}

// Arrived bytes are delivered before the error.
const Error* WatchedWire::failure() const {
  if (const Error* const lost = wire().failure()) return lost;
  return ended_ && !has_bytes_ && timeout_.expired() ? &*ended_ : nullptr;
}

bool WatchedWire::prepare_sleep(WakeFor wake) {
  if (!wake.bytes && ended_) return false;
  if (failure() != nullptr && !std::exchange(told_, true)) return false;
  return wire().prepare_sleep(wake);
}

}  // namespace hccl_like
