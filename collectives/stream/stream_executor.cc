#include "collectives/stream/stream_executor.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "collectives/verify/job.h"
#include "core/base/log.h"
#include "device/host/shared_pool.h"

namespace hccl_like {
namespace {

constexpr size_t kPage = SharedPool::kGrain;
// A cache line for each word: ranks write them at the same time.
constexpr size_t kWordBytes = 64;
static_assert(kPage == kWordBytes * StreamExecutor::kMostRanks);

constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();

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

bool StreamExecutor::may_serve(const Device& device, const Hosts& hosts,
                               const CallPathOptions& options, Collective collective) {
  return can_run_streams(device) && device.can_open_peers() && device.can_make_streams() &&
         device.can_allocate() && hosts.count() == 1 && hosts.size() > 1 &&
         hosts.size() <= kMostRanks && options.maps_memory && options.direct && !options.forced &&
         algorithm(collective, hosts) != nullptr;
}

StreamExecutor::StreamExecutor(std::shared_ptr<Communicator> communicator, const Device& device,
                               int index, const Device& host, hcd_stream like)
    : communicator_(std::move(communicator)),
      device_(device),
      index_(index),
      host_(host),
      stream_(device.make_stream(index, like).value()),
      beside_(device.make_stream(index, like).value()),
      trial_(device.allocate(index, 2 * kWordBytes).value()) {
  words_ = static_cast<std::byte*>(SharedPool::of_process().allocate(kPage));
  std::memset(words_, 0, kPage);
  exported_ = host.export_range(0, {words_, 0}, kPage).value();
  if (device.can_register_host()) registered_ = device.register_host(index, words_, kPage).value();
}

StreamExecutor::~StreamExecutor() {
  // A reduction that was only tried may still be under way.
  if (const auto error = device_.synchronize(index_, stream_.get()))
    log_warn("a stream of a closed group does not end: " + error->message);
  registered_.reset();
  if (!communicator_->has_failed()) SharedPool::of_process().free(words_);
}

hcd_ref StreamExecutor::scratch(size_t bytes) {
  if (scratch_.empty() || scratch_.back().size() < bytes)
    scratch_.push_back(device_.allocate(index_, std::bit_ceil(bytes)).value());
  return {scratch_.back().data(), 0};
}

StreamExecutor::Word* StreamExecutor::copy_of(int rank) const {
  return reinterpret_cast<Word*>(words_ + static_cast<size_t>(rank) * kWordBytes);
}

void StreamExecutor::release() const {
  for (int rank = 0; rank < kMostRanks; ++rank)
    __atomic_store_n(const_cast<uint64_t*>(copy_of(rank)), kLargest, __ATOMIC_RELEASE);
}

const StreamExecutor::Compiled& StreamExecutor::program(Collective collective, int root,
                                                        bool in_place) {
  const auto [found, added] = programs_.try_emplace({collective, root, in_place});
  if (!added) return found->second;
  const Hosts& hosts = communicator_->topology().hosts;
  const Job job = make_job(*algorithm(collective, hosts), hosts, root);
  auto programs = compile_streams(job, in_place);
  Compiled& made = found->second;
  for (const StreamProgram& program : programs) made.scratch.push_back(program.scratch_like);
  made.program = std::move(programs[static_cast<size_t>(communicator_->rank())]);
  made.chunks = job.ranks.front().chunks();
  return made;
}

// Whether the device has the reduction, which is known after the first try.
bool StreamExecutor::reduces(DataType type, ReduceOp op, Scaling scaling) {
  const auto [found, added] = reductions_.try_emplace({type, op, scaling.any()}, false);
  if (!added) return found->second;
  if (scaling.any() && (is_integer(type) || !device_.can_reduce_many())) return false;
  const hcd_ref one{trial_.data(), 0}, other{trial_.data(), kWordBytes};
  const std::array<hcd_ref, 2> both{one, other};
  const auto error =
      device_.can_reduce_many()
          ? device_.reduce_many(index_, one, both, 1, type, op, scaling, stream_.get())
          : device_.reduce(index_, one, other, 1, type, op, stream_.get());
  if (error)
    log_info([&] {
      return "calls with " + std::string(name(op)) + " of " + std::string(name(type)) +
             " go through the host: " + error->message;
    });
  return found->second = !error;
}

// Once: `peer`'s copy of this rank's word, in the page that the peer shows. False if that cannot
// be.
bool StreamExecutor::reach_word(int peer, const ExportedRange& page) {
  peers_.resize(static_cast<size_t>(communicator_->size()));
  Word*& word = peers_[static_cast<size_t>(peer)];
  if (word != nullptr) return true;
  auto view = communicator_->engine().peer_memory().open(host_, 0, page, kPage, nullptr);
  if (!view.ok()) {
    log_info([&] { return "words cannot be shared: " + view.error().message; });
    return false;
  }
  std::byte* const begin = view.value().data;
  if (device_.can_register_host()) {
    auto registered = device_.register_host(index_, begin, kPage);
    if (!registered.ok()) {
      log_info([&] { return "the device does not reach words: " + registered.error().message; });
      return false;
    }
    peer_registrations_.push_back(std::move(registered).value());
  }
  peer_mappings_.push_back(std::move(view).value().mapping);
  const auto own = static_cast<size_t>(communicator_->rank());
  word = reinterpret_cast<Word*>(begin + own * kWordBytes);
  return true;
}

}  // namespace hccl_like
