#pragma once
// Blocks as MPI messages to one rank, with one tag per direction.
#include <deque>
#include <memory>
#include <string>

#include "transport/blocks/block_port.h"
#include "transport/mpi/mpi_world.h"
#include "transport/wire/poller.h"

namespace hccl_like {

class MpiPort final : public BlockPort {
 public:
  MpiPort(MpiWorld& world, Poller& poller, BlockShape shape, int peer, int send_tag,
          int receive_tag);
  ~MpiPort() override;

  std::span<std::byte> send_slot(size_t slot) override { return at(sends_, slot); }
  std::span<std::byte> receive_slot(size_t slot) override { return at(receives_, slot); }
  void send(size_t slot, size_t bytes) override;
  void receive(size_t slot) override;
  void progress(BlockSink& sink) override;
  const std::string& broken() const override { return broken_; }
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Memory = std::unique_ptr<Line[]>;  // pages untouched before first use
  struct UnderWay {
    size_t slot;
    MpiLibrary::Handle request;
  };
  std::span<std::byte> at(const Memory& memory, size_t slot) const {
    return {memory[slot * shape_.block_bytes / sizeof(Line)].bytes, shape_.block_bytes};
  }
  bool finished(UnderWay& one);
  bool check(const char* function, int code);

  MpiWorld& world_;
  Poller& poller_;
  const BlockShape shape_;
  const int peer_, send_tag_, receive_tag_;
  Memory sends_, receives_;
  std::deque<UnderWay> sending_, receiving_;  // oldest first
  std::string broken_;
};

}  // namespace hccl_like
