#pragma once
// A connected TCP socket in the process's Poller.
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/tcp/congestion.h"
#include "transport/wire/poller.h"

namespace hccl_like {

struct TcpOptions {
  // SO_SNDBUF and SO_RCVBUF; 0 leaves the size to the kernel, which adapts it to the path.
  size_t socket_buffer_bytes = 0;
  // The longest peek().
  size_t receive_buffer_bytes = 256 * 1024;
  Congestion congestion;
  // Set when a connection breaks that its owner is to replace. Null: a connection that breaks ends
  // the wire.
  std::shared_ptr<bool> broke{};
};

// Used by one thread at a time; nothing blocks.
class TcpSocket {
 public:
  // `owner` and the poller must outlive this object. Throws kSystem if the socket cannot be
  // watched.
  TcpSocket(Fd socket, Poller& poller, Pollable& owner, const TcpOptions& options);
  ~TcpSocket() { unwatch(); }
  TcpSocket(const TcpSocket&) = delete;
  TcpSocket& operator=(const TcpSocket&) = delete;

  int fd() const { return socket_.get(); }
  // As sendmsg(); `bytes` is the sum of the pieces.
  ssize_t send(std::span<iovec> pieces, size_t bytes);
  // As recvmsg().
  ssize_t receive(std::span<iovec> pieces);
  // Sent bytes that the peer's kernel has not confirmed; the largest number if unknown.
  size_t unconfirmed() const;

  void set_interest(unsigned events);
  // No more events. An ended socket stays readable, so leaving it in the poller would prevent
  // sleeping.
  void unwatch();

  // The time since the peer's kernel last answered, and the attempts since then to send bytes
  // again.
  struct Silence {
    std::chrono::milliseconds lasts{0};
    unsigned attempts = 0;
  };
  Silence silence() const;
  // silence() at most every 100 ms, else none.
  Silence look_at_silence();

  // Resets the connection: a peer that still hears this host learns of the end.
  void break_off();
  // Takes bytes that nobody wants, up to a limit: close() with unread bytes resets the connection
  // and drops unsent bytes.
  void discard(std::span<std::byte> buffer);

 private:
  Fd socket_;
  Poller& poller_;
  Pollable& owner_;
  unsigned interest_;
  bool watched_ = true;
  Deadline next_look_;
};

}  // namespace hccl_like
