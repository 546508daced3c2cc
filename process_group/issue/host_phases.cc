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

// Calls without chunks, whose payload is cut into shards.
bool is_cut_into_shards(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kBroadcast;
}

// Parts of a call, which are in different phases at the same time; shorter ones cost more than they
// hide.
constexpr size_t kMostParts = 4, kLeastPart = size_t{8} << 20;

}  // namespace

bool HostPhases::may_serve(const DeviceAccess& access, const Hosts& hosts,
                           const CallPathOptions& options, Collective collective, size_t bytes,
                           size_t most) {
  // Each phase rounds its sums.
  if (!hosts.nested() || (options.deterministic && reduces(collective))) return false;
  const int least = ranks_of_emptiest_host(hosts), widest = std::max(hosts.count(), hosts.most());
  const bool of_all_hosts_alike =
      collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  return least > 1 &&
         (is_cut_into_shards(collective) || (of_all_hosts_alike && least == hosts.most())) &&
         bytes / static_cast<size_t>(least) >= StreamExecutor::kLeastChunk &&
         most / static_cast<size_t>(widest) >= kLeastStep &&
         Staging::may_use_streams(access, Hosts(hosts.most()), options, collective);
}

bool HostPhases::may_serve(const DeviceAccess& access, const Communicator& communicator,
                           const Request& request, size_t most) {
  const Hosts& hosts = communicator.topology().hosts;
  const bool gives_all =
      request.collective != Collective::kBroadcast && request.collective != Collective::kAllGather;
  const Side& all = gives_all ? request.input : request.output;
  if (!hosts.nested() || request.uneven || all.tensors.empty()) return false;
  // Messages of the middle phase would be compressed by the rules of a smaller call.
  if (communicator.compresses() && request.collective != Collective::kBroadcast) return false;
  return may_serve(access, hosts, communicator.path_options(request.collective), request.collective,
                   bytes_of(all.tensors), most) &&
         of_one_type(request) &&
         (is_cut_into_shards(request.collective) || has_equal_chunks(all)) &&
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
    const bool at_root = request.root == rank_;
    switch (request.collective) {
      case Collective::kAllReduce:
        whole_ = one_memory(request.output.tensors, true, true);
        return;
      case Collective::kReduce:
        whole_ = one_memory(request.input.tensors, true, at_root);
        return;
      case Collective::kBroadcast:
        whole_ = one_memory(request.output.tensors, at_root, !at_root);
        return;
      default:
        inputs_ = plain(request.input.tensors, false);
        outputs_ = plain(request.output.tensors, true);
    }
  }

  // Fills in the phases of part `part` of the call.
  void cut(size_t part) {
    phases_ = {};
    switch (request_.collective) {
      case Collective::kReduceScatter:
        return reduce_scatter();
      case Collective::kAllGather:
        return all_gather();
      default:
        move_shards(part);
    }
  }

  // Calls with chunks, which are packed, gain nothing from parts.
  size_t parts() const {
    return is_cut_into_shards(request_.collective)
               ? std::clamp<size_t>(whole_.nbytes() / kLeastPart, 1, kMostParts)
               : 1;
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

  // The tensors of a call without chunks as one range of memory.
  at::Tensor one_memory(at::TensorList tensors, bool filled, bool written) {
    if (tensors.size() == 1 && is_plain(tensors.front())) return tensors.front();
    return memory_of(tensors, filled, written);
  }

  // A part of the payload is cut into shards, one for each of the first ranks of a host.
  void move_shards(size_t part) {
    const bool sums = reduces(request_.collective),
               to_root = request_.collective == Collective::kReduce;
    const bool on_root_host = hosts_.host(request_.root) == hosts_.host(rank_);
    const size_t element = whole_.itemsize(), count = whole_.nbytes() / element;
    const size_t from = even_begin(count, part, parts()),
                 elements = even_begin(count, part + 1, parts()) - from;
    part_ = hccl_like::part_of(whole_, from * element, elements * element);
    pieces_.clear();
    const auto ranks = static_cast<size_t>(hosts_.on(hosts_.host(rank_)));
    for (size_t i = 0; i < ranks; ++i) {
      const size_t begin = even_begin(elements, std::min(i, shards_), shards_),
                   end = even_begin(elements, std::min(i + 1, shards_), shards_);
      pieces_.push_back(hccl_like::part_of(part_, begin * element, (end - begin) * element));
    }
    // The tensors of a reduce are unchanged on all ranks but the root.
    shard_ = to_root ? new_memory(pieces_[place_].nbytes(), part_) : pieces_[place_];
    const Side own{{&shard_, 1}, Arrangement::kOwn, {}};
    const Side shard{{&shard_, 1}, Arrangement::kWhole, {}};
    const Side everything{pieces_, Arrangement::kPerRank, {}};
    if (sums) {
      Request& first = phases_[0].emplace(phase_of(Collective::kReduceScatter));
      first.input = everything, first.output = own;
      reduce_with(first, scaling_.input);
    } else if (on_root_host) {
      Request& first = phases_[0].emplace(phase_of(Collective::kBroadcast));
      first.root = hosts_.place(request_.root);
      first.input = first.output = {{&part_, 1}, Arrangement::kWhole, {}};
    }
    if (place_ < shards_) {
      Request& second = phases_[1].emplace(phase_of(request_.collective));
      second.root = hosts_.host(request_.root);
      second.input = shard;
      if (!to_root || on_root_host) second.output = shard;
      reduce_with(second, scaling_.result);
    }
    if (to_root) {
      if (on_root_host) gather_at_root(own, everything);
      return;
    }
    if (!sums && on_root_host) return;
    Request& last = phases_[2].emplace(phase_of(Collective::kAllGather));
    last.input = own, last.output = everything;
  }

  void gather_at_root(const Side& own, const Side& everything) {
    Request& last = phases_[2].emplace(phase_of(Collective::kGather));
    last.uneven = true;
    last.root = hosts_.place(request_.root);
    last.input = own;
    if (request_.root == rank_) last.output = everything;
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
    pieces_ = by_place(request_.input, inputs_);
    between_ = new_memory(bytes_of(pieces_) / shards_, pieces_.front());
    Request& first = phases_[0].emplace(phase_of(Collective::kReduceScatter));
    first.input = {pieces_, Arrangement::kPerRank, {}};
    first.output = {{&between_, 1}, Arrangement::kOwn, {}};
    reduce_with(first, scaling_.input);
    Request& second = phases_[1].emplace(phase_of(Collective::kReduceScatter));
    second.input = {{&between_, 1}, Arrangement::kCut, {}};
    second.output = {outputs_, Arrangement::kOwn, {}};
    reduce_with(second, scaling_.result);
  }

  void all_gather() {
    pieces_ = by_place(request_.output, outputs_);
    between_ = new_memory(bytes_of(pieces_) / shards_, pieces_.front());
    Request& second = phases_[1].emplace(phase_of(Collective::kAllGather));
    second.input = {inputs_, Arrangement::kOwn, {}};
    second.output = {{&between_, 1}, Arrangement::kCut, {}};
    Request& last = phases_[2].emplace(phase_of(Collective::kAllGather));
    last.input = {{&between_, 1}, Arrangement::kOwn, {}};
    last.output = {pieces_, Arrangement::kPerRank, {}};
  }

  const Hosts& hosts_;
  const int rank_;
  const size_t place_, shards_;
  Pending& pending_;
  const Request& request_;
  const Scaling scaling_;
  Tensors inputs_, outputs_;  // of a call with chunks, plain
  at::Tensor whole_, part_;   // of a call without chunks
  Tensors pieces_;            // of the part
  at::Tensor between_, shard_;
  Copies copies_back_;
  std::array<std::optional<Request>, kPhases> phases_;
};

std::vector<std::shared_ptr<Staging::Call>> HostPhases::prepare(
    const Request& request, std::chrono::milliseconds timeout,
    const std::shared_ptr<Pending>& pending) {
  const c10::DeviceGuard device_guard(access_.device());
  auto comparison = Staging::compare(request, timeout, *communicator_);
  pending->add_slice(comparison.operation);
  Plan plan(*this, request, *pending);
  std::vector<std::shared_ptr<Staging::Call>> firsts;
  for (size_t part = 0; part < plan.parts(); ++part) {
    plan.cut(part);
    std::array<std::shared_ptr<Staging::Call>, kPhases> calls;
    for (size_t i = 0; i < kPhases; ++i) {
      const auto& phase = plan.phase(i);
      const auto& communicator = i == 1 ? between_ : within_;
      calls[i] = phase
                     ? prepare_phase(i, *phase, request.collective, timeout, communicator, pending)
                     : stagings_[i]->prepare_nothing(pending);
    }
    for (size_t i = 0; i + 1 < kPhases; ++i) {
      calls[i]->next = calls[i + 1];
      calls[i]->next_staging = stagings_[i + 1].get();
    }
    firsts.push_back(std::move(calls[0]));
  }
  plan.copy_back();
  firsts.front()->comparison = std::move(comparison);
  return firsts;
}

std::shared_ptr<Staging::Call> HostPhases::prepare_phase(
    size_t index, const Request& phase, Collective whole, std::chrono::milliseconds timeout,
    const std::shared_ptr<Communicator>& communicator, const std::shared_ptr<Pending>& pending) {
  auto slices = slices_of(phase, communicator->size(), most_);
  if (!slices) slices = one_slice_of(phase, communicator->size(), most_, 0);
  return stagings_[index]->prepare(phase, slices.value(), timeout, communicator, pending, whole);
}

}  // namespace hccl_like
