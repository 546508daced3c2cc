#include "process_group/issue/host_phases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>

#include "collectives/schedule/layout.h"
#include "device/reduce/reduce.h"
#include "process_group/calls/tensors.h"
#include "process_group/issue/staging_call.h"

namespace hccl_like {
namespace {

int ranks_of_emptiest_host(const Hosts& hosts) {
  int least = hosts.size();
  for (int host = 0; host < hosts.count(); ++host) least = std::min(least, hosts.on(host));
  return least;
}

size_t bytes_of(at::TensorList tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

bool has_equal_chunks(const Side& side) {
  const size_t bytes = side.tensors.front().nbytes();
  return side.arrangement == Arrangement::kCut ||
         std::ranges::all_of(side.tensors,
                             [&](const at::Tensor& one) { return one.nbytes() == bytes; });
}

}  // namespace

bool HostPhases::may_serve(const DeviceAccess& access, const Hosts& hosts,
                           const CallPathOptions& options, Collective collective, size_t bytes,
                           size_t most) {
  if (!hosts.nested()) return false;
  const int least = ranks_of_emptiest_host(hosts), widest = std::max(hosts.count(), hosts.most());
  const bool in_shards =
      collective == Collective::kAllReduce || collective == Collective::kBroadcast;
  const bool of_all_hosts_alike =
      collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  return least > 1 && (in_shards || (of_all_hosts_alike && least == hosts.most())) &&
         bytes / static_cast<size_t>(least) >= StreamExecutor::kLeastChunk &&
         most / static_cast<size_t>(widest) >= kLeastStep &&
         Staging::may_use_streams(access, Hosts(hosts.most()), options, collective);
}

bool HostPhases::may_serve(const DeviceAccess& access, const Communicator& communicator,
                           const Request& request, size_t most) {
  const Hosts& hosts = communicator.topology().hosts;
  const Side& all =
      request.collective == Collective::kReduceScatter ? request.input : request.output;
  if (!hosts.nested() || request.uneven || all.tensors.empty()) return false;
  const bool in_shards = all.arrangement == Arrangement::kWhole;
  return may_serve(access, hosts, communicator.path_options(request.collective), request.collective,
                   bytes_of(all.tensors), most) &&
         of_one_type(request) && (in_shards || has_equal_chunks(all)) &&
         !(is_integer(request.type) && reduces(request.collective) &&
           scaling(request.type, request.op, hosts.size(), request.factor).any());
}

HostPhases::HostPhases(Devices& devices, const DeviceAccess& access, size_t most,
                       std::shared_ptr<Communicator> communicator)
    : access_(access), most_(most), communicator_(std::move(communicator)) {
  const Hosts& hosts = communicator_->topology().hosts;
  const int rank = communicator_->rank(), place = hosts.place(rank);
  within_ = communicator_->part(hosts.ranks(hosts.host(rank)));
  std::vector<int> others;
  for (int host = 0; host < hosts.count() && place < ranks_of_emptiest_host(hosts); ++host)
    others.push_back(hosts.ranks(host)[static_cast<size_t>(place)]);
  between_ = communicator_->part(others);
  for (auto& staging : stagings_) staging = std::make_unique<Staging>(devices, access, most);
}

// One call's tensors and requests.
class HostPhases::Plan {
 public:
  Plan(HostPhases& phases, const Request& request, Pending& pending)
      : hosts_(phases.communicator_->topology().hosts),
        rank_(phases.communicator_->rank()),
        place_(static_cast<size_t>(hosts_.place(rank_))),
        shards_(static_cast<size_t>(ranks_of_emptiest_host(hosts_))),
        pending_(pending),
        request_(request),
        scaling_(reduces(request.collective)
                     ? scaling(request.type, request.op, hosts_.size(), request.factor)
                     : Scaling{}) {
    switch (request.collective) {
      case Collective::kAllReduce:
      case Collective::kBroadcast:
        move_shards();
        break;
      case Collective::kReduceScatter:
        reduce_scatter();
        break;
      default:
        all_gather();
    }
  }

  const std::optional<Request>& phase(size_t index) const { return phases_[index]; }
  // After the copies of the phases, which write to the memory that these read.
  void copy_back() {
    for (auto& [to, from] : copies_back_) pending_.copy_back(std::move(to), std::move(from));
  }

 private:
  Request phase_of(Collective collective) const {
    Request phase = request_;
    phase.collective = collective;
    phase.root = 0;
    return phase;
  }
  void reduce_with(Request& phase, double factor) const {
    if (!scaling_.any()) return;
    phase.op = factor == 1 ? ReduceOp::kSum : ReduceOp::kPreMulSum;
    phase.factor = factor;
  }

  // Memory of the call: the tensors one after the other, with what they hold if `filled`; copied
  // back at the end of the call if `written`.
  at::Tensor memory_of(at::TensorList tensors, bool filled, bool written) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    const at::Tensor& like = tensors.front();
    const at::Tensor memory = new_memory(bytes_of(tensors), like);
    size_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor piece =
          hccl_like::part_of(memory, begin, tensor.nbytes()).view(tensor.sizes());
      begin += tensor.nbytes();
      if (filled) piece.copy_(tensor);
      if (written) copies_back_.emplace_back(tensor, piece);
    }
    return memory;
  }
  at::Tensor new_memory(size_t bytes, const at::Tensor& like) {
    const at::Tensor memory =
        at::empty({static_cast<int64_t>(bytes / like.itemsize())}, like.options());
    pending_.hold_temporary(memory);
    return memory;
  }
  // The same for tensors that are not plain, each by itself.
  Tensors plain(at::TensorList tensors, bool written) {
    Tensors all;
    for (const at::Tensor& tensor : tensors)
      all.push_back(is_plain(tensor) ? tensor : memory_of({tensor}, !written, written));
    return all;
  }

  // The payload is cut into shards, one for each of the first ranks of a host.
  void move_shards() {
    const bool sums = request_.collective == Collective::kAllReduce;
    const int root_host = hosts_.host(request_.root), own_host = hosts_.host(rank_);
    const bool first_is_plain =
        request_.output.tensors.size() == 1 && is_plain(request_.output.tensors.front());
    const bool gives = sums || request_.root == rank_;
    whole_ = {first_is_plain ? request_.output.tensors.front()
                             : memory_of(request_.output.tensors, gives, sums || !gives)};
    const at::Tensor& all = whole_.front();
    const size_t elements = all.nbytes() / all.itemsize();
    const auto ranks = static_cast<size_t>(hosts_.on(own_host));
    for (size_t i = 0; i < ranks; ++i) {
      const size_t begin = even_begin(elements, std::min(i, shards_), shards_),
                   end = even_begin(elements, std::min(i + 1, shards_), shards_);
      parts_.push_back(
          hccl_like::part_of(all, begin * all.itemsize(), (end - begin) * all.itemsize()));
    }
    const Side own{{&parts_[place_], 1}, Arrangement::kOwn, {}};
    const Side shard{{&parts_[place_], 1}, Arrangement::kWhole, {}};
    const Side everything{parts_, Arrangement::kPerRank, {}};
    if (sums) {
      Request& first = phases_[0].emplace(phase_of(Collective::kReduceScatter));
      first.input = everything, first.output = own;
      reduce_with(first, scaling_.input);
    } else if (own_host == root_host) {
      Request& first = phases_[0].emplace(phase_of(Collective::kBroadcast));
      first.root = hosts_.place(request_.root);
      first.input = first.output = {whole_, Arrangement::kWhole, {}};
    }
    if (place_ < shards_) {
      Request& second = phases_[1].emplace(phase_of(request_.collective));
      second.root = sums ? 0 : root_host;
      second.input = second.output = shard;
      reduce_with(second, scaling_.result);
    }
    if (!sums && own_host == root_host) return;
    Request& last = phases_[2].emplace(phase_of(Collective::kAllGather));
    last.input = own, last.output = everything;
  }

  // Ordered by the ranks' places on their hosts, then by host: the chunks of the ranks with one
  // place are one chunk within a host.
  Tensors by_place(const Side& side, at::TensorList tensors) const {
    Tensors pieces;
    const auto ranks = static_cast<size_t>(hosts_.size());
    for (size_t place = 0; place < shards_; ++place)
      for (int host = 0; host < hosts_.count(); ++host) {
        const auto rank = static_cast<size_t>(hosts_.ranks(host)[place]);
        if (side.arrangement == Arrangement::kPerRank) {
          pieces.push_back(tensors[rank]);
          continue;
        }
        for (const at::Tensor& tensor : tensors) {
          const size_t share = tensor.nbytes() / ranks;
          pieces.push_back(hccl_like::part_of(tensor, rank * share, share));
        }
      }
    return pieces;
  }

  void reduce_scatter() {
    whole_ = plain(request_.input.tensors, /*written=*/false);
    parts_ = by_place(request_.input, whole_);
    own_ = plain(request_.output.tensors, /*written=*/true);
    between_ = new_memory(bytes_of(parts_) / shards_, parts_.front());
    Request& first = phases_[0].emplace(phase_of(Collective::kReduceScatter));
    first.input = {parts_, Arrangement::kPerRank, {}};
    first.output = {{&between_, 1}, Arrangement::kOwn, {}};
    reduce_with(first, scaling_.input);
    Request& second = phases_[1].emplace(phase_of(Collective::kReduceScatter));
    second.input = {{&between_, 1}, Arrangement::kCut, {}};
    second.output = {own_, Arrangement::kOwn, {}};
    reduce_with(second, scaling_.result);
  }

  void all_gather() {
    own_ = plain(request_.input.tensors, /*written=*/false);
    whole_ = plain(request_.output.tensors, /*written=*/true);
    parts_ = by_place(request_.output, whole_);
    between_ = new_memory(bytes_of(parts_) / shards_, parts_.front());
    Request& second = phases_[1].emplace(phase_of(Collective::kAllGather));
    second.input = {own_, Arrangement::kOwn, {}};
    second.output = {{&between_, 1}, Arrangement::kCut, {}};
    Request& last = phases_[2].emplace(phase_of(Collective::kAllGather));
    last.input = {{&between_, 1}, Arrangement::kOwn, {}};
    last.output = {parts_, Arrangement::kPerRank, {}};
  }

  const Hosts& hosts_;
  const int rank_;
  const size_t place_, shards_;
  Pending& pending_;
  const Request& request_;
  const Scaling scaling_;
  Tensors whole_, parts_, own_;
  at::Tensor between_;
  Copies copies_back_;
  std::array<std::optional<Request>, kPhases> phases_;
};

std::shared_ptr<Staging::Call> HostPhases::prepare(const Request& request,
                                                   std::chrono::milliseconds timeout,
                                                   const std::shared_ptr<Pending>& pending) {
  const c10::DeviceGuard device_guard(access_.device());
  auto comparison = Staging::compare(request, timeout, *communicator_);
  pending->add_slice(comparison.operation);
  Plan plan(*this, request, *pending);
  std::array<std::shared_ptr<Staging::Call>, kPhases> calls;
  for (size_t i = 0; i < kPhases; ++i) {
    const auto& phase = plan.phase(i);
    if (!phase) {
      calls[i] = stagings_[i]->prepare_nothing(pending);
      continue;
    }
    const auto& communicator = i == 1 ? between_ : within_;
    auto slices = slices_of(*phase, communicator->size(), most_);
    if (!slices) slices = one_slice_of(*phase, communicator->size(), most_, 0);
    calls[i] = stagings_[i]->prepare(*phase, slices.value(), timeout, communicator, pending,
                                     request.collective);
  }
  plan.copy_back();
  calls[0]->comparison = std::move(comparison);
  for (size_t i = 0; i + 1 < kPhases; ++i) {
    calls[i]->next = calls[i + 1];
    calls[i]->next_staging = stagings_[i + 1].get();
  }
  return calls[0];
}

}  // namespace hccl_like
