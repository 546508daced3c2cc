#pragma once
// A wire that detects the loss of its peer by a second connection over TCP (the lifeline).
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

// The lifeline carries no data. The peer's kernel closes it when the process ends, and answers
// keep-alive probes while the host is up. A process that is busy or stopped by a debugger is
// therefore not reported lost. Only the lifeline has timeouts, the wire has none.
// The last bytes of the peer may arrive after the lifeline ends: the wire fails a short time later.
class WatchedWire final : public WireWrapper, private Pollable {
 public:
  // `peer` is a name for error messages. The poller must outlive the wire.
  WatchedWire(std::unique_ptr<Wire> wire, Poller& poller, std::string peer);
  ~WatchedWire() override;

  // True while there has been no lifeline and the wire has not failed.
  bool misses_lifeline() const;
  const std::string& peer() const { return peer_; }
  // Requires misses_lifeline(). Takes over a connected socket that carries no data.
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
  bool has_bytes_ = false;      // at least the bytes that the last peek wanted
  std::optional<Error> ended_;  // the lifeline failed; the wire fails when `timeout_` expires
  Deadline timeout_ = Deadline::never();
  bool told_ = false;  // prepare_sleep() has reported the end
};

}  // namespace hccl_like
