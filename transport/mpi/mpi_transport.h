#pragma once
// A Transport to peers in the same MPI job, over any network that MPI supports.
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/mpi/mpi_world.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

class MpiTransport final : public Transport {
 public:
  // `self_id`: this end's id. The poller must outlive the transport. The world is never destroyed.
  MpiTransport(MpiWorld& world, std::string self_id, Poller& poller);
  ~MpiTransport() override;

  std::string_view name() const override { return "mpi"; }
  const std::string& address() const override { return address_; }
  bool can_reach(const FarEnd& peer) const override;
  // Call it once per peer: a second wire could not be told from the first.
  std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide side) override;
  std::string route(Wire& wire) const override;

 private:
  MpiWorld& world_;
  const std::string self_id_;
  Poller& poller_;
  std::string address_;
  std::set<std::string> connected_;  // ids
};

}  // namespace hccl_like
