#pragma once
// A wire that counts.
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/wire/wire_wrapper.h"

namespace hccl_like {

struct WireCounts {
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t writes = 0;
  uint64_t refused_writes = 0;  // the wire was full
  uint64_t sleeps = 0;
};

class TracedWire final : public WireWrapper {
 public:
  // `counts` must outlive the wire; read it on the thread that uses the wire.
  TracedWire(std::unique_ptr<Wire> inner, WireCounts& counts)
      : WireWrapper(std::move(inner)), counts_(counts) {}

  size_t write(std::span<const ConstRegion> pieces) override {
    const size_t taken = wire().write(pieces);
    ++counts_.writes;
    counts_.refused_writes += taken == 0;
    counts_.bytes_written += taken;
    return taken;
  }
  std::span<const std::byte> peek(size_t want) override { return wire().peek(want); }
  void release(size_t bytes) override {
    counts_.bytes_read += bytes;
    wire().release(bytes);
  }
  size_t read(std::span<std::byte> into) override {
    const size_t got = wire().read(into);
    counts_.bytes_read += got;
    return got;
  }
  bool prepare_sleep(WakeFor wake) override {
    const bool may = wire().prepare_sleep(wake);
    counts_.sleeps += may;
    return may;
  }

 private:
  WireCounts& counts_;
};

}  // namespace hccl_like
