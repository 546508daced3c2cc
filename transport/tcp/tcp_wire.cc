#include "transport/tcp/tcp_wire.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLargestTcpPeek = 4096;
constexpr size_t kPiecesPerCall = 16;

// With bytes in flight the kernel retransmits for a quarter of an hour. The limit outlasts an
// outage of two seconds, including the doubling pause between two retransmissions.
constexpr milliseconds kSilence{4300};
// The same where a new connection can be made: it may get through, or take another path.
constexpr milliseconds kSilenceBeforeAnother{2300};
constexpr unsigned kAttempts = 3;
// What a dead connection says about the peer is not older than its probes.
constexpr milliseconds kOldestSign{4500};

bool is_silence(int error_number) {
  return error_number == ETIMEDOUT || error_number == EHOSTUNREACH || error_number == ENETUNREACH;
}

bool would_block(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

}  // namespace

TcpWire::TcpWire(Fd socket, Poller& poller, const TcpOptions& options, std::string peer)
    : Wire("tcp"),
      options_(options),
      poller_(poller),
      socket_(std::make_unique<TcpSocket>(std::move(socket), poller, static_cast<Pollable&>(*this),
                                          options)),
      peer_(std::move(peer)),
      capacity_(std::max(options.receive_buffer_bytes, 2 * kLargestTcpPeek)),
      silence_(options.broke ? kSilenceBeforeAnother : kSilence),
      attempts_(kAttempts) {
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(capacity_);
}

TcpWire::~TcpWire() {
  if (!ended_ && socket_) socket_->discard({buffer_.get(), capacity_});
}

size_t TcpWire::write(std::span<const ConstRegion> pieces) {
  if (state_ != State::kOpen || !write_cause_.empty()) return 0;
  if (owes() && !send_again()) return 0;
  size_t written = 0;
  while (!pieces.empty()) {
    std::array<iovec, kPiecesPerCall> vectors;
    const size_t count = std::min(pieces.size(), vectors.size());
    size_t asked = 0;
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = {const_cast<std::byte*>(pieces[i].data), pieces[i].bytes};
      asked += pieces[i].bytes;
    }
    const auto part = pieces.first(count);
    pieces = pieces.subspan(count);
    if (asked == 0) continue;

    const ssize_t sent = socket_->send({vectors.data(), count}, asked);
    if (sent < 0) {
      if (would_block(errno) || errno == ENOBUFS || errno == ENOMEM) break;
      // The kernel may still hold received bytes: the read side reports the end.
      write_cause_ = errno_text(errno);
      readable_ = true;
      break;
    }
    keep(part, static_cast<size_t>(sent));
    written += static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < asked) break;
  }
  return written;
}

void TcpWire::keep(std::span<const ConstRegion> pieces, size_t bytes) {
  if (!replaceable()) return;
  if (bytes > sent_.room()) confirm();
  for (ConstRegion piece : pieces) {
    piece.bytes = std::min(piece.bytes, bytes);
    sent_.keep(piece);
    bytes -= piece.bytes;
  }
  resent_ = sent_.end();
}

bool TcpWire::let_go(uint64_t accepted, bool copy) {
  if (!sent_.holds(accepted)) return true;
  if (state_ == State::kOpen) confirm();
  if (copy) sent_.let_go(accepted);
  return !sent_.holds(accepted);
}

// The sent bytes that the peer's kernel has not confirmed. Forgets the others. The kernel has taken
// the bytes [floor_, resent_) and, before them, the position.
size_t TcpWire::confirm() {
  const size_t bytes = socket_->unconfirmed();
  if (replaceable() && bytes <= resent_ - floor_) sent_.confirm(resent_ - bytes);
  return bytes;
}

// True once the kernel has all bytes of before the connection broke.
bool TcpWire::send_again() {
  while (state_ == State::kOpen && write_cause_.empty() && owes()) {
    const ConstRegion part = sent_.from(resent_);
    std::array<iovec, 1> vectors{{{const_cast<std::byte*>(part.data), part.bytes}}};
    const size_t asked = part.bytes;
    const ssize_t sent = socket_->send(vectors, asked);
    if (sent < 0 && !would_block(errno)) {
      write_cause_ = errno_text(errno);
      readable_ = true;
    }
    if (sent < 0) break;
    resent_ += static_cast<uint64_t>(sent);
    if (static_cast<size_t>(sent) < asked) break;
  }
  return !owes();
}

std::span<const std::byte> TcpWire::peek(size_t want) {
  want_ = want;
  if (buffered() < want && worth_a_look()) {
    make_room(want);
    if (tail_ < capacity_) receive({});
  }
  return {buffer_.get() + head_, buffered()};
}

void TcpWire::release(size_t bytes) {
  head_ += bytes;
  if (head_ == tail_) head_ = tail_ = 0;
}

// Buffered bytes go first. One system call reads the rest directly into the caller's memory, and
// the bytes after it (mostly the next header) into the buffer.
size_t TcpWire::read(std::span<std::byte> into) {
  want_ = 1;
  const size_t ready_bytes = std::min(buffered(), into.size());
  if (ready_bytes > 0) {
    std::memcpy(into.data(), buffer_.get() + head_, ready_bytes);
    release(ready_bytes);
    into = into.subspan(ready_bytes);
  }
  if (into.empty() || !worth_a_look()) return ready_bytes;
  return ready_bytes + receive(into);
}

// Fills `into`, then the free end of the buffer, in one system call. Returns the bytes in `into`.
size_t TcpWire::receive(std::span<std::byte> into) {
  if (state_ == State::kResuming) {
    take_position();
    // Bytes of the old connection come first.
    if (buffered() > 0 && !into.empty()) return 0;
  }
  if (state_ != State::kOpen) {
    readable_ = false;
    return 0;
  }
  if (owes()) send_again();
  std::array<iovec, 2> vectors{iovec{into.data(), into.size()},
                               iovec{buffer_.get() + tail_, capacity_ - tail_}};
  const size_t asked = vectors[0].iov_len + vectors[1].iov_len;
  const ssize_t got = socket_->receive(std::span(vectors).subspan(into.empty() ? 1 : 0));
  if (got > 0) {
    const auto bytes = static_cast<size_t>(got);
    // A short count means an empty kernel queue; the poller reports further bytes or the end.
    readable_ = bytes == asked;
    just_dry_ = !readable_;
    const size_t direct = std::min(bytes, into.size());
    received_ += bytes;
    tail_ += bytes - direct;
    return direct;
  }
  if (got < 0 && would_block(errno)) {
    readable_ = false;
    // After a failed write an empty queue is the end, even if the kernel has reported the cause.
    if (!write_cause_.empty()) lose(write_cause_);
    return 0;
  }
  if (!write_cause_.empty())
    lose(write_cause_);
  else if (got < 0)
    lose(errno_text(errno), is_silence(errno));
  else
    end("the peer closed the connection");
  return 0;
}

// Moves buffered bytes to the front if `want` bytes would not fit behind or room is short.
void TcpWire::make_room(size_t want) {
  if (head_ == 0 || capacity_ - tail_ >= std::max(want, capacity_ / 4)) return;
  std::memmove(buffer_.get(), buffer_.get() + head_, buffered());
  tail_ -= head_;
  head_ = 0;
}

const Error* TcpWire::failure() const { return ended_ && buffered() < want_ ? &*ended_ : nullptr; }

// This process buffers no outgoing bytes, but the kernel drops undelivered bytes at a reset, and
// close() resets if received bytes are unread. flush() therefore returns true once the peer's
// kernel has confirmed every byte; afterwards neither a reset nor the end of this process loses
// one. The destructor avoids the reset for owners that close earlier.
bool TcpWire::flush() {
  if (ended_ || (!write_cause_.empty() && !replaceable())) return true;
  if (state_ != State::kOpen || !write_cause_.empty() || (owes() && !send_again())) return false;
  return confirm() == 0;
}

bool TcpWire::prepare_sleep(Bytes bytes, bool for_space) {
  const bool unread = bytes == Bytes::kUnread;
  if (ended_) return !unread;
  if (bytes == Bytes::kWanted && buffered() >= want_) return false;
  if (state_ == State::kResuming) end_silence();
  // Its owner sees to a broken connection. The bytes of a new one end the sleep.
  if (state_ != State::kOpen) return true;
  if (unread && !write_cause_.empty()) return false;
  // EPOLLRDHUP reports the peer's end of stream without a read.
  static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLRDHUP == POLLRDHUP);
  unsigned events = unread ? EPOLLRDHUP : buffered() < capacity_ ? EPOLLIN : 0u;
  if (for_space || owes()) events |= EPOLLOUT;
  pollfd now{socket_->fd(), static_cast<short>(events), 0};
  const bool already = ::poll(&now, 1, 0) > 0;
  readable_ = (unread && readable_) || (already && (now.revents & ~POLLOUT) != 0);
  if (already) return false;
  if (end_silence()) return false;
  socket_->set_interest(events);
  return true;
}

// Whether the peer's host or the path to it is lost: repeated retransmissions and no answer.
bool TcpWire::end_silence() {
  const TcpSocket::Silence now = current().look_at_silence();
  if (now.attempts < attempts_ || now.lasts < silence_) return false;
  lose("its host has not answered for " + std::to_string(silence_.count()) + " ms", true);
  if (ended_) socket_->break_off();
  return true;
}

void TcpWire::end_sleep() {
  if (state_ == State::kOpen) socket_->set_interest(EPOLLIN);
}

void TcpWire::ready(unsigned events) {
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) readable_ = true;
  if (state_ == State::kResuming)
    take_position();
  else if ((events & EPOLLOUT) && owes())
    send_again();
}

void TcpWire::end(std::string cause) {
  if (ended_) return;
  ended_ = Error{ErrorCode::kPeerLost, "the tcp connection to " + peer_ + " is gone: " + cause};
  state_ = State::kEnded;
  readable_ = false;
  resent_ = sent_.end();
  next_.reset();
  if (socket_) socket_->unwatch();
}

// `silent`: the connection broke because nothing came from the peer.
void TcpWire::lose(std::string cause, bool silent) {
  if (!replaceable()) return end(std::move(cause));
  const milliseconds ago =
      silent ? std::min(kOldestSign, current().silence().lasts) : milliseconds(0);
  stop(std::move(cause));
  heard_ -= ago;
}

void TcpWire::stop(std::string cause) {
  if (ended_ || state_ == State::kBroken) return;
  state_ = State::kBroken;
  cause_ = std::move(cause);
  heard_ = Deadline::Clock::now();
  if (socket_) socket_->unwatch();
  if (next_) {
    // The peer sends no more than its position before it has this end's.
    next_.reset();
    position_bytes_ = position_.size();
  }
  write_cause_.clear();
  readable_ = false;
  *options_.broke = true;
}

void TcpWire::give_up(Error error) {
  if (ended_) return;
  if (replaceable()) {
    stop("");
    drain();
  }
  end("");
  ended_ = std::move(error);
  if (socket_) socket_->break_off();
}

void TcpWire::resume(Fd socket, WireSide side, std::string peer) {
  stop("it is replaced");
  if (ended_) return;
  peer_ = std::move(peer);
  auto fresh = std::make_unique<TcpSocket>(std::move(socket), poller_,
                                           static_cast<Pollable&>(*this), options_);
  state_ = State::kResuming;
  if (side == WireSide::kConnector) {
    drain();
    socket_ = std::move(fresh);
    send_position();
  } else {
    next_ = std::move(fresh);
  }
  position_bytes_ = 0;
}

// Reads the connection to its end: the peer sends nothing more there, and has forgotten the bytes
// that this kernel has confirmed.
void TcpWire::drain() {
  if (!socket_) return;
  for (;;) {
    const bool has_position = position_bytes_ == position_.size();
    if (has_position && tail_ == capacity_) make_room_for_all();
    std::byte* const to = has_position ? buffer_.get() + tail_ : position_.data() + position_bytes_;
    const size_t most = has_position ? capacity_ - tail_ : position_.size() - position_bytes_;
    const ssize_t got = ::recv(socket_->fd(), to, most, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    (has_position ? tail_ : position_bytes_) += static_cast<size_t>(got);
    if (has_position) received_ += static_cast<uint64_t>(got);
  }
  position_bytes_ = position_.size();
  socket_->break_off();
  socket_.reset();
}

void TcpWire::make_room_for_all() {
  auto larger = std::make_unique_for_overwrite<std::byte[]>(2 * capacity_);
  std::memcpy(larger.get(), buffer_.get() + head_, buffered());
  tail_ -= head_;
  head_ = 0;
  buffer_ = std::move(larger);
  capacity_ *= 2;
}

void TcpWire::send_position() {
  // A fresh connection takes more than these few bytes.
  if (::send(socket_->fd(), &received_, sizeof received_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      ssize_t{sizeof received_})
    stop(errno_text(errno));
}

void TcpWire::take_position() {
  const int fd = current().fd();
  while (position_bytes_ < position_.size()) {
    const ssize_t got = ::recv(fd, position_.data() + position_bytes_,
                               position_.size() - position_bytes_, MSG_DONTWAIT);
    if (got < 0 && (would_block(errno) || errno == EINTR)) return;
    if (got <= 0) return stop(got == 0 ? "the peer closed the connection" : errno_text(errno));
    position_bytes_ += static_cast<size_t>(got);
  }
  if (next_) {
    drain();
    socket_ = std::move(next_);
    send_position();
    if (state_ != State::kResuming) return;
  }
  uint64_t position;
  std::memcpy(&position, position_.data(), sizeof position);
  if (position < sent_.begin() || position > sent_.end())
    return end("the new connection cannot go on at byte " + std::to_string(position) +
               ", because this end has bytes " + std::to_string(sent_.begin()) + " to " +
               std::to_string(sent_.end()) + "; does a proxy stand between the ends?");
  sent_.confirm(position);
  floor_ = resent_ = position;
  resent_bytes_ += sent_.end() - position;
  ++resumed_;
  state_ = State::kOpen;
  readable_ = true;
  send_again();
}

}  // namespace hccl_like
