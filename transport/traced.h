#pragma once
// A wire that counts.
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/wire.h"

namespace hccl_like {

struct WireCounts {
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t writes = 0;
  uint64_t refused_writes = 0;  // the wire was full
  uint64_t sleeps = 0;
};

class TracedWire final : public Wire {
 public:
  // `counts` must outlive the wire; read it on the thread that uses the wire.
  TracedWire(std::unique_ptr<Wire> inner, WireCounts& counts)
      : inner_(std::move(inner)), counts_(counts) {}

  size_t write(std::span<const ConstRegion> pieces) override {
    const size_t taken = inner_->write(pieces);
    ++counts_.writes;
    counts_.refused_writes += taken == 0;
    counts_.bytes_written += taken;
    return taken;
  }
  std::span<const std::byte> peek(size_t want) override { return inner_->peek(want); }
  void release(size_t bytes) override {
    counts_.bytes_read += bytes;
    inner_->release(bytes);
  }
  size_t read(std::span<std::byte> into) override {
    const size_t got = inner_->read(into);
    counts_.bytes_read += got;
    return got;
  }
  const Error* failure() const override { return inner_->failure(); }
  bool flush() override { return inner_->flush(); }
  bool owes() override { return inner_->owes(); }
  bool prepare_sleep(WakeFor wake) override {
    const bool may = inner_->prepare_sleep(wake);
    counts_.sleeps += may;
    return may;
  }
  void end_sleep() override { inner_->end_sleep(); }
  Workspace workspace() override { return inner_->workspace(); }
  const PeerCommons* commons() const override { return inner_->commons(); }
  void nudge() override { inner_->nudge(); }
  std::string_view transport() const override { return inner_->transport(); }

 private:
  const std::unique_ptr<Wire> inner_;
  WireCounts& counts_;
};

}  // namespace hccl_like
