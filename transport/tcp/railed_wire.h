#pragma once
// A Wire over several TCP connections to one peer, its rails: for hosts with several networks, and
// for networks that give one connection less than their whole.
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
  // Connections to a peer, in all; both ends must say the same, of this and of the two below.
  size_t rails = 1;
  // Bytes that go over one rail before the next one has its turn; at least 4096, the longest peek.
  size_t stripe_bytes = 128 * 1024;
  // So much goes over the first rail, each way: whoever says little needs no more than one.
  size_t first_bytes = 1024 * 1024;
};

// Which rail a byte takes follows from its place in the stream alone, so nothing is added to the
// bytes, and no two ends can disagree. Each rail has its own share in the kernel's buffers, so all
// are under way at the same time; the slowest of them decides.
//
// It begins with its first rail. The others are attached when they have come, in any order; what
// can't go on without one waits for it. One rail that breaks ends the wire.
class RailedWire final : public Wire {
 public:
  RailedWire(std::unique_ptr<TcpWire> first, const RailOptions& options);

  // Whether enough has passed for the other rails to be worth making, as this end sees it, and some
  // are still missing.
  bool wants_rails() const;
  // Whether some are, worth making or not: the other end may have seen more pass.
  bool misses_any() const { return missing_ > 0; }
  // Whether rail `index` may come: there is such a one, and it is not there.
  bool misses(size_t index) const;
  // Only if it misses it.
  void attach(size_t index, std::unique_ptr<TcpWire> rail);
  // Ends the wire: a rail cannot be made. Not if it has ended already.
  void give_up(Error error);

  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override { return ended_ ? &*ended_ : nullptr; }
  bool flush() override;
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;
  std::string_view transport() const override { return "tcp"; }

 private:
  // A place in the stream: which rail the byte there takes, and how many follow it on that rail
  // without a break.
  struct Place {
    TcpWire* rail;  // null: it has not come yet
    size_t run;
  };
  Place place(uint64_t position) const;
  void look_for_the_end(size_t want);

  const RailOptions options_;
  std::vector<std::unique_ptr<TcpWire>> rails_;
  size_t missing_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  size_t want_ = 1;              // of the last peek
  std::vector<std::byte> seam_;  // what a peek shows that begins on one rail and ends on the next
  std::optional<Error> ended_;
};

}  // namespace hccl_like
