#include "collectives/stream/stream_executor.h"

#include <bit>
#include <string>
#include <utility>

#include "collectives/verify/job.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

// Words in a block for captured calls, some of which a call takes.
constexpr size_t kCapturedBlock = 16 * SharedWords::kGrain;

}  // namespace

const Algorithm* StreamExecutor::algorithm(Collective collective, const Hosts& hosts) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return find_algorithm(collective, "direct");
    case Collective::kBroadcast:
      return find_algorithm(collective, "scatter_allgather");
    case Collective::kAllToAll: {
      const Algorithm* const direct = find_algorithm(collective, "direct");
      return direct->fits(hosts) ? direct : find_algorithm(collective, "pairwise");
    }
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return nullptr;
  }
  return nullptr;
}

bool StreamExecutor::may_serve(const Device& device) {
  return can_run_streams(device) && device.can_open_peers() && device.can_make_streams() &&
         device.can_allocate();
}

bool StreamExecutor::may_serve(const Device& device, const Hosts& hosts,
                               const CallPathOptions& options, Collective collective) {
  return may_serve(device) && hosts.count() == 1 && hosts.size() > 1 &&
         hosts.size() <= kMostRanks && options.maps_memory && options.direct &&
         (!options.forced || options.own) && algorithm(collective, hosts) != nullptr &&
         // reduce() rounds after each source.
         // Nor does a schedule that a user wrote promise an order of sums.
         !(options.deterministic && hccl_like::reduces(collective) &&
           (options.own || !device.can_reduce_many()));
}

StreamExecutor::StreamExecutor(std::shared_ptr<Communicator> communicator, const Device& device,
                               int index, const Device& host, hcd_stream like)
    : communicator_(std::move(communicator)),
      device_(device),
      index_(index),
      host_(host),
      stream_(device.make_stream(index, like).value()),
      beside_(device.make_stream(index, like).value()),
      words_(*communicator_, device, index, host, SharedWords::kGrain),
      reductions_(device, index, stream_.get()) {}

hcd_ref StreamExecutor::scratch(size_t bytes) {
  if (scratch_.empty() || scratch_.back().size() < bytes)
    scratch_.push_back(device_.allocate(index_, std::bit_ceil(bytes)).value());
  return {scratch_.back().data(), 0};
}

CapturedWords StreamExecutor::words_of_captured() {
  const size_t each = 2 * static_cast<size_t>(communicator_->size());
  const size_t in_block = kCapturedBlock / each;
  const size_t number = captured_calls_++;
  if (number / in_block == captured_.size())
    captured_.push_back(
        std::make_unique<SharedWords>(*communicator_, device_, index_, host_, kCapturedBlock));
  return {captured_.back().get(), number % in_block * each};
}

ReplayWatch& StreamExecutor::watch() {
  if (!watch_) watch_ = std::make_unique<ReplayWatch>(communicator_);
  return *watch_;
}

const StreamExecutor::Compiled& StreamExecutor::program(Collective collective, int root,
                                                        bool in_place) {
  const auto [found, added] = programs_.try_emplace({collective, root, in_place});
  if (!added) return found->second;
  const Hosts& hosts = communicator_->topology().hosts;
  const Algorithm* const own = communicator_->own(collective);
  const Job job = make_job(own != nullptr ? *own : *algorithm(collective, hosts), hosts, root);
  auto programs = compile_streams(job, in_place);
  Compiled& made = found->second;
  for (const StreamProgram& program : programs) made.scratch.push_back(program.scratch_like);
  made.program = std::move(programs[static_cast<size_t>(communicator_->rank())]);
  made.chunks = job.ranks.front().chunks();
  return made;
}

}  // namespace hccl_like
