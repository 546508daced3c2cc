#pragma once
// A wire that misbehaves within its contract, and breaks when told: for tests.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "transport/wire/wire_wrapper.h"

namespace hccl_like {

// Everything follows from the seed and the order of the calls.
struct Faults {
  uint64_t seed = 1;
  // Of 100 calls of write, peek and read, how many move nothing, and how many only a few bytes.
  unsigned nothing_percent = 20;
  unsigned short_percent = 30;
  // The connection breaks for this end once so many bytes were written or consumed here.
  uint64_t cut_after_bytes = ~uint64_t{0};
};

class FaultyWire final : public WireWrapper {
 public:
  FaultyWire(std::unique_ptr<Wire> inner, Faults faults)
      : WireWrapper(std::move(inner)), faults_(faults), random_(faults.seed) {}

  size_t write(std::span<const ConstRegion> pieces) override {
    size_t left = allowed();
    std::array<ConstRegion, 8> fewer;
    size_t count = 0;
    for (const ConstRegion& piece : pieces) {
      if (left == 0 || count == fewer.size()) break;
      fewer[count++] = {piece.data, std::min(piece.bytes, left)};
      left -= fewer[count - 1].bytes;
    }
    return count == 0 ? 0 : moved(wire().write({fewer.data(), count}));
  }
  // A short view would break the promise about `want`, so a peek shows less only by showing
  // nothing.
  std::span<const std::byte> peek(size_t want) override {
    if (cut_ || hidden()) return {};
    return wire().peek(want);
  }
  void release(size_t bytes) override { wire().release(moved(bytes)); }
  size_t read(std::span<std::byte> into) override {
    const size_t most = std::min(into.size(), allowed());
    return most == 0 ? 0 : moved(wire().read(into.first(most)));
  }
  const Error* failure() const override { return cut_ ? &*cut_ : wire().failure(); }
  bool flush() override { return cut_ || wire().flush(); }
  bool owes() override { return !cut_ && wire().owes(); }
  // Bytes that were hidden a moment ago may be there, so a sleep could be one too many.
  bool prepare_sleep(WakeFor wake) override {
    return wire().prepare_sleep(wake) && !std::exchange(hid_, false) && !cut_;
  }

 private:
  unsigned percent() { return static_cast<unsigned>(random_() % 100); }
  bool hidden() {
    hid_ = percent() < faults_.nothing_percent;
    return hid_;
  }
  // How much a call may move.
  size_t allowed() {
    if (cut_ || hidden()) return 0;
    return percent() < faults_.short_percent ? 1 + random_() % 70 : ~size_t{0};
  }
  size_t moved(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ >= faults_.cut_after_bytes && !cut_)
      cut_ = Error{.code = ErrorCode::kPeerLost, .message = "the connection was cut by a test"};
    return bytes;
  }

  const Faults faults_;
  std::mt19937_64 random_;
  uint64_t bytes_ = 0;
  bool hid_ = false;
  std::optional<Error> cut_;
};

}  // namespace hccl_like
