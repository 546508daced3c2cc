#pragma once
// A wire around another one, for those that add something to it.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "transport/wire/wire.h"

namespace hccl_like {

// Passes everything on: whatever a Wire can be asked, a wrapper answers as the wire in it does
// unless it says otherwise.
class WireWrapper : public Wire {
 public:
  size_t write(std::span<const ConstRegion> pieces) override { return wire_->write(pieces); }
  std::span<const std::byte> peek(size_t want = 1) override { return wire_->peek(want); }
  void release(size_t bytes) override { wire_->release(bytes); }
  size_t read(std::span<std::byte> into) override { return wire_->read(into); }
  const Error* failure() const override { return wire_->failure(); }
  bool flush() override { return wire_->flush(); }
  bool owes() override { return wire_->owes(); }
  bool prepare_sleep(WakeFor wake) override { return wire_->prepare_sleep(wake); }
  void end_sleep() override { wire_->end_sleep(); }
  size_t alignment() const override { return wire_->alignment(); }
  Workspace workspace() override { return wire_->workspace(); }
  RemoteMemory* remote_memory() const override { return wire_->remote_memory(); }
  const PeerCommons* commons() const override { return wire_->commons(); }
  void nudge() override { wire_->nudge(); }
  std::string_view transport() const override { return wire_->transport(); }

 protected:
  explicit WireWrapper(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}
  Wire& wire() const { return *wire_; }

 private:
  const std::unique_ptr<Wire> wire_;
};

}  // namespace hccl_like
