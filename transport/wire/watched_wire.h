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
// therefore not reported lost. Only the lifeline has timeouts, the wire has none. A lifeline that
// breaks while the peer's process may live can be replaced: the wire's own network may work.
// The last bytes of the peer may arrive after the lifeline ends: the wire fails a short time later.
class WatchedWire final : public WireWrapper, private Pollable {
 public:
  // `peer` is a name for error messages. The poller must outlive the wire. `broke` is set when the
  // lifeline breaks: a new one is expected then, or give_up(). Null: the wire fails at once.
  WatchedWire(std::unique_ptr<Wire> wire, Poller& poller, std::string peer,
              std::shared_ptr<bool> broke = nullptr);
  ~WatchedWire() override;

  // Whether the wire is healthy and has no lifeline: not yet, or not any more.
  bool misses_lifeline() const;
  const std::string& peer() const { return peer_; }
  // Takes over a connected socket that carries no data. The peer may have found a lifeline broken
  // that this end still has.
  void attach(Fd socket);
  // Why the last lifeline broke; empty if none has.
  const std::string& cause() const { return cause_; }
  // No new lifeline came about.
  void give_up(const std::string& why);

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
  const std::shared_ptr<bool> broke_;
  std::string cause_;
  bool has_bytes_ = false;      // at least the bytes that the last peek wanted
  std::optional<Error> ended_;  // the peer is lost; the wire fails when `timeout_` expires
  Deadline timeout_ = Deadline::never();
  bool told_ = false;  // prepare_sleep() has reported the end
};

}  // namespace hccl_like
