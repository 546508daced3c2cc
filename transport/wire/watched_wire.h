#pragma once
// A Wire of a transport that need not notice the end of its peer, beside a TCP connection that
// does: its lifeline.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire_wrapper.h"

namespace hccl_like {

// Nothing is ever sent over the lifeline. The kernel at its other end closes it when the process
// ends, however it ends, and answers probes as long as the host is there, whatever the process
// does: one that is busy, or stopped by a debugger, is never taken for gone. So the limits on
// silence lie here, and none on the wire.
//
// What the peer wrote last may still be on its way when the lifeline ends. The wire has failed once
// nothing came for a moment after that.
class WatchedWire final : public WireWrapper, private Pollable {
 public:
  // `peer` is for people. The poller must outlive it.
  WatchedWire(std::unique_ptr<Wire> wire, Poller& poller, std::string peer);
  ~WatchedWire() override;

  // Whether a lifeline may come: there was none yet, and the wire has not failed.
  bool misses_lifeline() const;
  const std::string& peer() const { return peer_; }
  // Only if it misses it. Takes over a connected socket over which nobody speaks.
  void attach(Fd socket);

  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override { return failure() != nullptr || wire().flush(); }
  bool owes() override { return failure() == nullptr && wire().owes(); }
  bool prepare_sleep(WakeFor wake) override;

 private:
  void ready(unsigned events) override;
  void wait_for_more();

  Poller& poller_;
  const std::string peer_;
  Fd lifeline_;
  bool attached_ = false;
  bool has_bytes_ = false;      // those that the last peek wanted
  std::optional<Error> ended_;  // the lifeline has; the wire has once `backoff_` is over
  Deadline backoff_ = Deadline::never();
  bool told_ = false;  // to whoever was about to sleep
};

}  // namespace hccl_like
