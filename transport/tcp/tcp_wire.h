#pragma once
// A Wire over a connected TCP socket, which a new one can replace when the connection breaks.
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/tcp/tcp_socket.h"
#include "transport/tcp/unconfirmed.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// How a connection is replaced without the loss or the repetition of a byte:
//
//   connector                                  acceptor
//   makes a connection, authenticates    ->    writes no more to the old connection
//   reads the old connection to its      <-    (its welcome)
//   end, and closes it
//   position u64: bytes received so far  ->    reads the old connection to its end, and closes it
//   sends again from there on            <-    position u64: bytes received so far
//                                              sends again from the connector's position on
//
// Each end reads the old connection after the other has stopped writing there, so all bytes that a
// kernel has confirmed are read. A sender therefore keeps only unconfirmed bytes. A position
// outside of these ends the wire: a proxy between the ends has confirmed bytes that it lost. A new
// connection may break or be replaced like any other, also before the positions are known.
class TcpWire final : public Wire, private Pollable {
 public:
  // Takes over a connected socket after the handshake. `peer` ("10.0.0.5:4000") is for errors. The
  // poller must outlive the wire. Throws kSystem if the socket cannot be watched.
  TcpWire(Fd socket, Poller& poller, const TcpOptions& options, std::string peer);
  // Closes without losing written bytes: see flush() in tcp_wire.cc.
  ~TcpWire() override;

  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override;
  bool owes() override { return resent_ < sent_.end(); }
  bool let_go(uint64_t accepted, bool copy) override;
  bool prepare_sleep(WakeFor wake) override {
    return prepare_sleep(wake.bytes ? Bytes::kWanted : Bytes::kUnread, wake.space);
  }
  void end_sleep() override;

  // Whether another connection can take this one's place; all below needs that.
  bool replaceable() const { return options_.broke != nullptr; }
  // Whether the connection is to be replaced. The wire neither moves bytes nor fails until then.
  bool broken() const { return state_ == State::kBroken; }
  // Whether a new connection waits for the peer's position.
  bool resuming() const { return state_ == State::kResuming; }
  // Why the last connection broke, and the last sign of life that it had of the peer.
  const std::string& cause() const { return cause_; }
  Deadline::Clock::time_point heard() const { return heard_; }
  // Stops using the connection: broken() is true afterwards, unless the wire has ended.
  void stop(std::string cause);
  // The next connection, after the handshake; `peer` as in the constructor. The acceptor must not
  // use the wire between its welcome and this call.
  void resume(Fd socket, WireSide side, std::string peer);
  // Ends the wire because no connection can be made; no effect if it has ended. What has arrived of
  // a replaceable wire's stream can still be read.
  void give_up(Error error);
  // Set once no byte can arrive any more; failure() waits until those that have arrived are read.
  const Error* ended() const { return ended_ ? &*ended_ : nullptr; }
  // Connections that took the place of another one, and bytes that were sent again there.
  uint64_t resumed() const { return resumed_; }
  uint64_t resent() const { return resent_bytes_; }
  // The silence with unconfirmed bytes after which the connection counts as broken.
  void limit_silence(std::chrono::milliseconds limit, unsigned attempts) {
    silence_ = limit;
    attempts_ = attempts;
  }

  // How prepare_sleep() treats bytes. kWanted: wakes for the bytes of the last peek. kTakenIn:
  // buffered bytes do not prevent the sleep, because the next bytes of the stream arrive on another
  // rail; new bytes wake while the buffer has room. kUnread: leaves all bytes in the kernel.
  enum class Bytes { kWanted, kTakenIn, kUnread };
  bool prepare_sleep(Bytes bytes, bool for_space);

 private:
  enum class State { kOpen, kBroken, kResuming, kEnded };
  void ready(unsigned events) override;
  bool worth_a_look() {
    return readable_ || (poller_.few_sockets() && !std::exchange(just_dry_, false));
  }
  size_t buffered() const { return tail_ - head_; }
  void keep(std::span<const ConstRegion> pieces, size_t bytes);
  size_t confirm();
  bool send_again();
  size_t receive(std::span<std::byte> into);
  void make_room(size_t want);
  void lose(std::string cause, bool silent = false);
  void end(std::string cause);
  bool end_silence();
  TcpSocket& current() const { return next_ ? *next_ : *socket_; }
  void drain();
  void make_room_for_all();
  void take_position();
  void send_position();

  const TcpOptions options_;
  Poller& poller_;
  std::unique_ptr<TcpSocket> socket_;  // null once its bytes are read and it is closed
  // Takes the place of socket_ once the peer's position has arrived. At the acceptor's end only.
  std::unique_ptr<TcpSocket> next_;
  std::string peer_;
  State state_ = State::kOpen;

  std::unique_ptr<std::byte[]> buffer_;  // [head_, tail_): bytes not taken yet
  size_t capacity_;
  size_t head_ = 0;
  size_t tail_ = 0;
  // Of the last peek. Fewer bytes neither wake the sleeper nor delay failure() at the peer's end.
  size_t want_ = 1;

  // The kernel may hold bytes: set by the poller, cleared when a receive drains the socket.
  bool readable_ = true;
  bool just_dry_ = false;       // the last receive drained the socket: skip the next try
  std::string write_cause_;     // a write error, reported once the read side is drained
  std::optional<Error> ended_;  // set once no byte can arrive any more

  uint64_t received_ = 0;  // bytes of the stream from all connections
  Unconfirmed sent_;
  uint64_t resent_ = 0;  // the kernel has taken the bytes before this position on this connection
  uint64_t floor_ = 0;   // the first byte on this connection
  std::array<std::byte, sizeof(uint64_t)> position_;  // the peer's, as far as it has arrived
  size_t position_bytes_ = sizeof(uint64_t);
  std::string cause_;
  Deadline::Clock::time_point heard_{};
  std::chrono::milliseconds silence_;
  unsigned attempts_;
  uint64_t resumed_ = 0, resent_bytes_ = 0;
};

}  // namespace hccl_like
