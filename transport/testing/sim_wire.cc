#include "transport/testing/sim_wire.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "transport/testing/read_shown.h"

namespace hccl_like {
namespace {

struct SimClock {
  explicit SimClock(uint64_t seed) : random(seed) {}
  size_t up_to(size_t most) { return std::uniform_int_distribution<size_t>(1, most)(random); }

  std::mt19937_64 random;
  uint64_t tick = 0;
  bool cut = false;
};

struct Channel {
  struct Arrival {
    uint64_t tick;
    size_t bytes;
  };
  std::vector<std::byte> bytes;   // in flight or arrived, not released
  std::deque<Arrival> under_way;  // the tail of `bytes`
  size_t arrived = 0;             // the visible part of `bytes`
  bool closed = false;            // by the writer
  bool abandoned = false;         // by the reader
};

class SimWire final : public Wire {
 public:
  SimWire(const SimOptions& options, std::shared_ptr<SimClock> clock, std::shared_ptr<Channel> in,
          std::shared_ptr<Channel> out)
      : Wire("sim", options.alignment),
        options_(options),
        clock_(std::move(clock)),
        in_(std::move(in)),
        out_(std::move(out)) {}
  ~SimWire() override {
    out_->closed = true;
    in_->abandoned = true;
  }

  size_t write(std::span<const ConstRegion> pieces) override {
    tick();
    if (clock_->cut || out_->abandoned) return 0;
    size_t room = options_.capacity - out_->bytes.size();
    if (options_.chunk > 0) room = std::min(room, clock_->up_to(options_.chunk));
    size_t taken = 0;
    for (const ConstRegion& piece : pieces) {
      const size_t part = std::min(piece.bytes, room - taken);
      out_->bytes.insert(out_->bytes.end(), piece.data, piece.data + part);
      taken += part;
    }
    if (taken > 0)
      out_->under_way.push_back(
          {clock_->tick + (options_.delay > 0 ? clock_->up_to(options_.delay) : 0), taken});
    return taken;
  }

  std::span<const std::byte> peek(size_t want) override {
    tick();
    want_ = want;
    size_t shown = clock_->cut ? 0 : in_->arrived;
    if (options_.chunk > 0) shown = std::min(shown, want - 1 + clock_->up_to(options_.chunk));
    shown_ = shown;
    return {in_->bytes.data(), shown};
  }

  void release(size_t bytes) override {
    bytes = std::min(bytes, shown_);
    shown_ -= bytes;
    in_->arrived -= bytes;
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<ptrdiff_t>(bytes));
  }

  size_t read(std::span<std::byte> into) override { return read_shown(*this, into); }

  const Error* failure() const override {
    if (!failure_ && (clock_->cut || (in_->closed && in_->bytes.size() < want_)))
      failure_ = Error{.code = ErrorCode::kPeerLost,
                       .message = clock_->cut ? "the simulated connection was cut"
                                              : "the peer closed the simulated connection"};
    return failure_ ? &*failure_ : nullptr;
  }

  bool flush() override { return true; }

  bool prepare_sleep(WakeFor wake) override {
    tick();
    const bool space = wake.space && !out_->abandoned && out_->bytes.size() < options_.capacity;
    if (!wake.bytes) return !space && !clock_->cut && !in_->closed;
    return in_->arrived < want_ && !space && failure() == nullptr;
  }
  void end_sleep() override {}

 private:
  void tick() {
    ++clock_->tick;
    while (!in_->under_way.empty() && in_->under_way.front().tick <= clock_->tick) {
      in_->arrived += in_->under_way.front().bytes;
      in_->under_way.pop_front();
    }
  }

  const SimOptions options_;
  const std::shared_ptr<SimClock> clock_;
  const std::shared_ptr<Channel> in_;
  const std::shared_ptr<Channel> out_;
  size_t shown_ = 0;
  size_t want_ = 1;  // of the last peek
  mutable std::optional<Error> failure_;
};

}  // namespace

SimPair make_sim_pair(const SimOptions& options) {
  auto clock = std::make_shared<SimClock>(options.seed);
  auto there = std::make_shared<Channel>(), back = std::make_shared<Channel>();
  return {.a = std::make_unique<SimWire>(options, clock, back, there),
          .b = std::make_unique<SimWire>(options, clock, there, back),
          .cut = [clock] { clock->cut = true; }};
}

}  // namespace hccl_like
