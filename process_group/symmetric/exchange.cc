#include "process_group/symmetric/exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "device/reduce/reduce.h"
#include "process_group/device/plugin_streams.h"

namespace hccl_like {
namespace {

// The contiguous pieces of a tensor: the tensor or its rows.
std::vector<at::Tensor> pieces(const at::Tensor& tensor, bool whole) {
  if (tensor.numel() == 0) return {};
  if (whole) return {tensor};
  TORCH_CHECK_VALUE(tensor.dim() == 2 && tensor.stride(1) == 1,
                    "hccl-like: symmetric memory needs contiguous tensors, or 2-D ones whose rows "
                    "are contiguous");
  return tensor.unbind(0);
}

// --- by the host, on addresses ---

struct HostReduction {
  std::byte* out;
  std::vector<const std::byte*> sources;
  size_t elements;
};
struct HostCopy {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};
struct HostPhase {
  std::vector<HostReduction> reductions;
  std::vector<HostCopy> copies;
};

class HostPlan {
 public:
  HostPlan(Memory& memory, const Reducing& reducing)
      : memory_(memory),
        kernels_(reduction(reducing.type, reducing.op)),
        scaling_(scaling(reducing.type, reducing.op, memory.get_world_size(), reducing.factor)) {}

  void add(const Phase& phase) {
    HostPhase& host = phases_.emplace_back();
    for (const PeerReduction& reduction : phase.reductions) add(host, reduction);
    for (const PeerCopy& copy : phase.copies) add(host, copy);
  }
  StepNeeds take_needs() { return std::move(needs_); }

  std::optional<Error> run(const Memory::Turn& turn) const {
    for (const HostPhase& phase : phases_) {
      if (auto error = turn.meet()) return error;
      for (const HostReduction& one : phase.reductions)
        kernels_.combine_all(one.out, nullptr, one.sources, one.elements, scaling_);
      for (const HostCopy& one : phase.copies) std::memmove(one.to, one.from, one.bytes);
    }
    return turn.meet();
  }

 private:
  void add(HostPhase& host, const PeerReduction& reduction) {
    const at::Tensor& out_tensor = reduction.out;
    const bool whole = out_tensor.is_contiguous() &&
                       std::all_of(reduction.sources.begin(), reduction.sources.end(),
                                   [](const at::Tensor& source) { return source.is_contiguous(); });
    const size_t first = host.reductions.size();
    for (const at::Tensor& out : pieces(out_tensor, whole))
      host.reductions.push_back({address(out), {}, static_cast<size_t>(out.numel())});
    for (const at::Tensor& source : reduction.sources) {
      size_t piece = first;
      for (const at::Tensor& part : pieces(source, whole))
        host.reductions[piece++].sources.push_back(address(part));
    }
  }
  void add(HostPhase& host, const PeerCopy& copy) {
    if (copy.to.numel() == 0) return;
    host.copies.push_back({address(copy.to), address(copy.from), copy.to.nbytes()});
  }
  std::byte* address(const at::Tensor& tensor) {
    if (!memory_.is_own(tensor)) needs_.tensors.push_back(tensor);
    return needs_.aliases.emplace_back(memory_.access().alias(tensor)).address();
  }

  Memory& memory_;  // used while the plan is made
  const Reduction kernels_;
  const Scaling scaling_;
  std::vector<HostPhase> phases_;
  StepNeeds needs_;
};

// --- by the device's own operators ---

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  const bool is_bool = a.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::kProduct:
      return is_bool ? at::logical_and(a, b) : at::mul(a, b);
    case ReduceOp::kMin:
      return at::minimum(a, b);
    case ReduceOp::kMax:
      return at::maximum(a, b);
    case ReduceOp::kBitAnd:
      return at::bitwise_and(a, b);
    case ReduceOp::kBitOr:
      return at::bitwise_or(a, b);
    case ReduceOp::kBitXor:
      return at::bitwise_xor(a, b);
    default:
      return is_bool ? at::logical_or(a, b) : at::add(a, b);
  }
}

// --- by the plugin's kernels ---

// Reduces into `out` in rank order. Returns false, with `out` unchanged, if the plugin cannot.
// Narrow floats are excluded: they need wide accumulation.
bool reduce_by_plugin(const DeviceAccess& access, const PeerReduction& reduction,
                      const Reducing& reducing) {
  const at::Tensor& out = reduction.out;
  const Device* const plugin = access.plugin();
  if (plugin == nullptr || !plugin->can_copy_within() || !plugin->can_reduce()) return false;
  if (c10::isReducedFloatingType(out.scalar_type()) || reducing.op == ReduceOp::kAvg) return false;
  const auto contiguous = [](const at::Tensor& tensor) { return tensor.is_contiguous(); };
  if (out.numel() == 0 || !contiguous(out) || !std::ranges::all_of(reduction.sources, contiguous))
    return false;
  const auto stream = PluginStreams(access.device(), plugin).current();
  if (!stream) return false;
  // `out` may alias this rank's source.
  const at::Tensor sum = at::empty_like(out);
  const int index = access.plugin_index();
  throw_if(plugin->copy_within(index, ref_of(sum), ref_of(reduction.sources.front()), sum.nbytes(),
                               *stream));
  for (size_t i = 1; i < reduction.sources.size(); ++i) {
    const auto error =
        plugin->reduce(index, ref_of(sum), ref_of(reduction.sources[i]),
                       static_cast<size_t>(sum.numel()), reducing.type, reducing.op, *stream);
    if (error && error->code == ErrorCode::kUnsupported) return false;
    throw_if(error);
  }
  throw_if(plugin->copy_within(index, ref_of(out), ref_of(sum), sum.nbytes(), *stream));
  return true;
}

void reduce_on_device(const DeviceAccess& access, const PeerReduction& reduction,
                      const Reducing& reducing) {
  if (reduce_by_plugin(access, reduction, reducing)) return;
  const auto type = reduction.out.scalar_type();
  const auto ranks = static_cast<int>(reduction.sources.size());
  const Scaling scale = scaling(reducing.type, reducing.op, ranks, reducing.factor);
  const auto operand = [&](const at::Tensor& tensor) {
    const at::Tensor wide = c10::isReducedFloatingType(type) ? tensor.to(at::kFloat) : tensor;
    return scale.input == 1 ? wide : at::mul(wide, scale.input);
  };
  at::Tensor sum = operand(reduction.sources.front());
  for (size_t i = 1; i < reduction.sources.size(); ++i)
    sum = combined(sum, operand(reduction.sources[i]), reducing.op);
  if (scale.result != 1)
    sum = is_integer(reducing.type) ? at::div(sum, ranks, "trunc") : at::mul(sum, scale.result);
  at::Tensor(reduction.out).copy_(sum);
}

}  // namespace

at::Tensor counterpart(Memory& memory, const at::Tensor& tensor, int rank) {
  if (rank == memory.get_rank()) return tensor;
  const auto elements = static_cast<int64_t>(memory.get_buffer_size() / tensor.itemsize());
  return memory.get_buffer(rank, {elements}, tensor.scalar_type(), 0)
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

std::vector<at::Tensor> counterparts(Memory& memory, const at::Tensor& tensor) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < memory.get_world_size(); ++rank)
    all.push_back(counterpart(memory, tensor, rank));
  return all;
}

void exchange(Memory& memory, const char* what, const std::vector<Phase>& phases,
              const Reducing& reducing) {
  const at::AutoDispatchBelowADInplaceOrView unseen;  // outside autograd
  const Memory::Turn turn = memory.turn();
  if (memory.access().direct()) {
    auto plan = std::make_shared<HostPlan>(memory, reducing);
    for (const Phase& phase : phases) plan->add(phase);
    StepNeeds needs = plan->take_needs();
    memory.run(what, [plan, turn] { return plan->run(turn); }, std::move(needs));
    return;
  }
  for (const Phase& phase : phases) {
    memory.run(what, [turn] { return turn.meet(); });
    for (const PeerReduction& reduction : phase.reductions)
      reduce_on_device(memory.access(), reduction, reducing);
    for (const PeerCopy& copy : phase.copies) at::Tensor(copy.to).copy_(copy.from);
  }
  memory.run(what, [turn] { return turn.meet(); });
}

}  // namespace hccl_like
