#include "transport/mpi/mpi_transport.h"

#include <charconv>
#include <cstdint>

#include "core/base/error.h"
#include "transport/blocks/block_wire.h"
#include "transport/mpi/mpi_port.h"

namespace hccl_like {
namespace {

// Large enough to amortize the cost of a message, few enough to stay in the L2 cache.
constexpr BlockShape kMpiShape{.blocks = 8, .block_bytes = 128 << 10};

// The tag of one direction, computed by both ends (FNV-1a). An earlier mesh of the same processes
// had other ids, so its messages do not match.
int tag_for(const std::string& from, const std::string& to, int last) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : from + to)
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return static_cast<int>(hash % (static_cast<uint64_t>(last) + 1));
}

// Parses "job rank"; -1 for another job.
int rank_in(const std::string& job, const std::string& address) {
  if (!address.starts_with(job + " ")) return -1;
  int rank = -1;
  const char* const end = address.data() + address.size();
  const auto parsed = std::from_chars(address.data() + job.size() + 1, end, rank);
  return parsed.ptr == end ? rank : -1;
}

}  // namespace

MpiTransport::MpiTransport(MpiWorld& world, std::string self_id, Poller& poller)
    : world_(world),
      self_id_(std::move(self_id)),
      poller_(poller),
      address_(world.job() + " " + std::to_string(world.rank())) {}

MpiTransport::~MpiTransport() = default;

bool MpiTransport::can_reach(const FarEnd& peer) const {
  const int rank = rank_in(world_.job(), peer.address);
  return rank >= 0 && rank < world_.size();
}

std::unique_ptr<Wire> MpiTransport::connect(const FarEnd& peer, WireSide) {
  if (!connected_.insert(peer.id).second)
    throw_error(ErrorCode::kUnsupported, "it has been tried with this peer before");
  const int rank = rank_in(world_.job(), peer.address);
  auto port = std::make_unique<MpiPort>(world_, poller_, kMpiShape, rank,
                                        tag_for(self_id_, peer.id, world_.last_tag()),
                                        tag_for(peer.id, self_id_, world_.last_tag()));
  return std::make_unique<BlockWire>(std::move(port), kMpiShape, name(),
                                     "rank " + std::to_string(rank) + " of the MPI job");
}

std::string MpiTransport::route(Wire&) const { return "by " + world_.library().version; }

}  // namespace hccl_like
