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
  // What peek() can show at most.
  size_t receive_buffer_bytes = 256 * 1024;
  Congestion congestion;
};

class TcpWire final : public Wire, private Pollable {
 public:
  // Takes over a connected socket on which both ends have agreed to speak. `peer` is for error
  // messages, e.g. "10.0.0.5:4000". The poller must outlive the wire. Throws kSystem if the socket
  // cannot be watched.
  TcpWire(Fd socket, Poller& poller, const TcpOptions& options, std::string peer);
  // Closes without losing what was written: see the comment at flush().
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
  std::string_view transport() const override { return "tcp"; }

  // What prepare_sleep() does about bytes: waits for those that the last peek wanted; takes in what
  // fits of those that arrive, of which none is a reason not to sleep, as the next ones come
  // another way; or leaves all where they are.
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

  std::unique_ptr<std::byte[]> buffer_;  // bytes [head_, tail_) have arrived and were not taken yet
  const size_t capacity_;
  size_t head_ = 0;
  size_t tail_ = 0;
  // Of the last peek: fewer bytes than that are no reason to wake, and end with the peer.
  size_t want_ = 1;

  // The kernel may hold bytes: set by the poller, cleared when a receive ran dry.
  bool readable_ = true;
  bool just_dry_ = false;  // the last receive took all there was: not asked again at once
  unsigned interest_ = 0;
  Deadline next_look_;          // at what the kernel knows of the peer's host
  std::string write_cause_;     // why a write failed, until the read side has been emptied
  std::optional<Error> ended_;  // set once nothing more can arrive
};

}  // namespace hccl_like
