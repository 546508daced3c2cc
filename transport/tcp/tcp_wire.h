#pragma once
// A Wire over a connected TCP socket.
#include <sys/uio.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/tcp/congestion.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire.h"

namespace hccl_like {

struct TcpOptions {
  // SO_SNDBUF and SO_RCVBUF; 0 leaves the size to the kernel, which adapts it to the path.
  size_t socket_buffer_bytes = 0;
  // The longest peek().
  size_t receive_buffer_bytes = 256 * 1024;
  Congestion congestion;
};

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
  bool prepare_sleep(WakeFor wake) override {
    return prepare_sleep(wake.bytes ? Bytes::kWanted : Bytes::kUnread, wake.space);
  }
  void end_sleep() override;

  // How prepare_sleep() treats bytes. kWanted: wakes for the bytes of the last peek. kTakenIn:
  // buffered bytes do not prevent the sleep, because the next bytes of the stream arrive on another
  // rail; new bytes wake while the buffer has room. kUnread: leaves all bytes in the kernel.
  enum class Bytes { kWanted, kTakenIn, kUnread };
  bool prepare_sleep(Bytes bytes, bool for_space);

 private:
  void ready(unsigned events) override;
  bool worth_a_look() {
    return readable_ || (poller_.few_sockets() && !std::exchange(just_dry_, false));
  }
  size_t buffered() const { return tail_ - head_; }
  ssize_t send(std::span<iovec> pieces, size_t bytes);
  size_t receive(std::span<std::byte> into);
  void make_room(size_t want);
  void set_interest(unsigned events);
  void end(std::string cause);
  bool is_cut_off();
  void break_off();

  Fd socket_;
  Poller& poller_;
  const std::string peer_;

  std::unique_ptr<std::byte[]> buffer_;  // [head_, tail_): bytes not taken yet
  const size_t capacity_;
  size_t head_ = 0;
  size_t tail_ = 0;
  // Of the last peek. Fewer bytes neither wake the sleeper nor delay failure() at the peer's end.
  size_t want_ = 1;

  // The kernel may hold bytes: set by the poller, cleared when a receive drains the socket.
  bool readable_ = true;
  bool just_dry_ = false;  // the last receive drained the socket: skip the next try
  unsigned interest_ = 0;
  Deadline next_look_;          // when is_cut_off() checks again
  std::string write_cause_;     // a write error, reported once the read side is drained
  std::optional<Error> ended_;  // set once no byte can arrive any more
};

}  // namespace hccl_like
