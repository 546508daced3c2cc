#pragma once
// Base class of wires that add a feature to another wire.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "transport/wire/wire.h"

namespace hccl_like {

// Forwards every method to the inner wire. Derived classes override some of them.
class WireWrapper : public Wire {
 public:
  size_t write(std::span<const ConstRegion> pieces) override { return wire_->write(pieces); }
  std::span<const std::byte> peek(size_t want = 1) override { return wire_->peek(want); }
  void release(size_t bytes) override { wire_->release(bytes); }
  size_t read(std::span<std::byte> into) override { return wire_->read(into); }
  const Error* failure() const override { return wire_->failure(); }
  bool flush() override { return wire_->flush(); }
  bool owes() override { return wire_->owes(); }
  bool let_go(uint64_t accepted, bool copy) override { return wire_->let_go(accepted, copy); }
  bool prepare_sleep(WakeFor wake) override { return wire_->prepare_sleep(wake); }
  void end_sleep() override { wire_->end_sleep(); }
  WireExtensions extensions() override { return wire_->extensions(); }

 protected:
  explicit WireWrapper(std::unique_ptr<Wire> wire)
      : Wire(wire->transport(), wire->alignment()), wire_(std::move(wire)) {}
  Wire& wire() const { return *wire_; }

 private:
  const std::unique_ptr<Wire> wire_;
};

}  // namespace hccl_like
