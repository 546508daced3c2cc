#pragma once
// A wire of which the other end is an input.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/targets.h"
#include "transport/wire/wire.h"

namespace hccl_like::fuzz {

// Shows bytes that it was given, in pieces of every size, and then ends. What is written to it is
// gone.
class BytesWire final : public Wire {
 public:
  explicit BytesWire(Input input)
      : Wire("bytes"), input_(input), piece_(input.empty() ? 1 : 1 + input[0] % 97) {}
  size_t write(std::span<const ConstRegion> pieces) override {
    size_t bytes = 0;
    for (const ConstRegion& piece : pieces) bytes += piece.bytes;
    return bytes;
  }
  std::span<const std::byte> peek(size_t want) override {
    want_ = want;
    const size_t shown = std::min(input_.size() - at_, std::max(want, piece_));
    return std::as_bytes(input_.subspan(at_, shown));
  }
  void release(size_t bytes) override {
    require(bytes <= input_.size() - at_, "more was released than shown");
    at_ += bytes;
  }
  size_t read(std::span<std::byte> into) override {
    const size_t part = std::min({into.size(), input_.size() - at_, piece_});
    if (part > 0) std::memcpy(into.data(), input_.data() + at_, part);
    at_ += part;
    return part;
  }
  const Error* failure() const override { return input_.size() - at_ < want_ ? &end_ : nullptr; }
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor) override { return false; }
  void end_sleep() override {}

 private:
  const Input input_;
  const size_t piece_;
  size_t at_ = 0;
  size_t want_ = 1;
  const Error end_{ErrorCode::kPeerLost, "the end"};
};

}  // namespace hccl_like::fuzz
