#pragma once
// A Wire over several TCP connections (rails) to one peer: for hosts with several networks, and for
// networks that limit the bandwidth of one connection.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/wire/wire.h"

namespace hccl_like {

struct RailOptions {
  // Connections per peer. Both ends must use the same RailOptions.
  size_t rails = 1;
  // Bytes per rail before the next rail takes its turn; at least 4096, the longest peek.
  size_t stripe_bytes = 128 * 1024;
  // Bytes in each direction over the first rail alone: light traffic needs no other rail.
  size_t first_bytes = 1024 * 1024;
};

// The stream position alone determines the rail of a byte, so rails need no extra headers and both
// ends always agree. Each rail has its own kernel buffers, so all rails carry data at the same
// time. The slowest rail determines the bandwidth.
//
// The wire starts with its first rail; the others attach later in any order. Data for a missing
// rail waits for it, and so do data for a rail whose connection is being replaced (TcpWire). The
// failure of one rail ends the wire.
class RailedWire final : public Wire {
 public:
  RailedWire(std::unique_ptr<TcpWire> first, const RailOptions& options);

  // Whether rails are missing and this end has seen enough traffic to justify them.
  bool wants_rails() const;
  // Whether any rail is missing, for either reason: the other end may have seen more traffic.
  bool misses_any() const { return missing_ > 0; }
  // Whether rail `index` exists and is missing.
  bool misses(size_t index) const;
  // Precondition: misses(index).
  void attach(size_t index, std::unique_ptr<TcpWire> rail);
  // Ends all rails because one cannot be made. failure() follows once their bytes are read.
  void give_up(const Error& error);
  // Whether a rail has ended: no connection can be made any more.
  bool over() const;
  size_t rails() const { return rails_.size(); }
  // Expires with the wire.
  std::weak_ptr<const void> life() const { return life_; }
  // Null: missing.
  TcpWire* rail(size_t index) const { return rails_[index].get(); }

  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override { return ended_ ? &*ended_ : nullptr; }
  bool flush() override;
  bool owes() override;
  bool let_go(uint64_t accepted, bool copy) override;
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;

 private:
  // The rail of a stream position, and the number of consecutive bytes on that rail from there.
  struct Place {
    TcpWire* rail;  // null: not attached yet
    size_t run;
  };
  Place place(uint64_t position) const;
  void attach_rail(size_t index, std::unique_ptr<TcpWire> rail);
  void look_for_the_end(size_t want);
  void look_for_the_overdue(TcpWire& reading);

  const RailOptions options_;
  std::vector<std::unique_ptr<TcpWire>> rails_;
  size_t missing_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  size_t want_ = 1;              // of the last peek
  std::vector<std::byte> seam_;  // a peek that spans two rails
  std::optional<Error> ended_;
  const std::shared_ptr<const void> life_ = std::make_shared<char>();
  // Since when the rail of byte read_ has delivered nothing although others have.
  Deadline overdue_ = Deadline::never();
  uint64_t overdue_at_ = 0;
};

}  // namespace hccl_like
