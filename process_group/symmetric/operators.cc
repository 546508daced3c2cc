#include "process_group/symmetric/operators.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/symmetric/exchange.h"

namespace hccl_like {
namespace {

namespace symm = c10d::symmetric_memory;
using Group = const std::string&;

c10::intrusive_ptr<Memory> memory_of(const at::Tensor& tensor, Group group, const char* what) {
  const auto found = symm::rendezvous(tensor, group);
  TORCH_CHECK_VALUE(found, "symm_mem::", what,
                    " needs a tensor in symmetric memory: allocate it by "
                    "torch.distributed._symmetric_memory.empty");
  auto memory = c10::dynamic_intrusive_pointer_cast<Memory>(found);
  TORCH_CHECK_VALUE(memory, "symm_mem::", what,
                    " is served by hccl-like and the tensor comes from '",
                    symm::get_backend(tensor.device()).value_or("another allocator"),
                    "'; call torch.distributed._symmetric_memory.set_backend('hccl-like') before "
                    "the first allocation");
  return memory;
}

Reducing reducing_of(Group name, const at::Tensor& tensor, const char* what) {
  static const std::map<std::string, c10d::ReduceOp::RedOpType> kNames{
      {"sum", c10d::ReduceOp::SUM},         {"avg", c10d::ReduceOp::AVG},
      {"product", c10d::ReduceOp::PRODUCT}, {"min", c10d::ReduceOp::MIN},
      {"max", c10d::ReduceOp::MAX},         {"band", c10d::ReduceOp::BAND},
      {"bor", c10d::ReduceOp::BOR},         {"bxor", c10d::ReduceOp::BXOR}};
  const auto found = kNames.find(name);
  TORCH_CHECK_VALUE(found != kNames.end(), "symm_mem::", what, ": '", name,
                    "' is no reduction; sum, avg, product, min, max, band, bor and bxor are");
  try {
    return reducing(c10d::ReduceOp(found->second), tensor.scalar_type());
  } catch (const Exception& exception) {
    throw_torch_error(exception.error(), std::string("symm_mem::") + what);
  }
}

void check_contiguous(const at::Tensor& tensor, const char* what, const char* which) {
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "symm_mem::", what, " needs ", which,
                    " to be contiguous; call contiguous() on it");
}

void check_like(const at::Tensor& out, const at::Tensor& input, int64_t elements,
                const char* what) {
  check_contiguous(out, what, "the output");
  TORCH_CHECK_VALUE(out.scalar_type() == input.scalar_type() && out.device() == input.device() &&
                        out.numel() == elements,
                    "symm_mem::", what, " needs an output of ", elements, " elements of ",
                    input.scalar_type(), " on ", input.device());
}

// The part of flat `tensor` that `rank` reduces; parts differ by at most one element.
at::Tensor share_of(const at::Tensor& tensor, int rank, int ranks) {
  const int64_t elements = tensor.numel();
  const int64_t begin = elements * rank / ranks, end = elements * (rank + 1) / ranks;
  return tensor.view({-1}).narrow(0, begin, end - begin);
}

at::Tensor one_shot_all_reduce_out(const at::Tensor& input, std::string op, std::string group,
                                   at::Tensor out) {
  constexpr const char* kWhat = "one_shot_all_reduce";
  check_contiguous(input, kWhat, "the input");
  check_like(out, input, input.numel(), kWhat);
  const Reducing reducing = reducing_of(op, input, kWhat);
  const auto memory = memory_of(input, group, kWhat);
  exchange(*memory, kWhat,
           {{.reductions = {{out.view(input.sizes()), counterparts(*memory, input)}}}}, reducing);
  return out;
}

at::Tensor one_shot_all_reduce(const at::Tensor& input, std::string op, std::string group) {
  return one_shot_all_reduce_out(input, std::move(op), std::move(group), at::empty_like(input));
}

at::Tensor one_shot_all_reduce_copy_out(const at::Tensor& buffer, const at::Tensor& local,
                                        std::string op, std::string group, at::Tensor out) {
  constexpr const char* kWhat = "one_shot_all_reduce_copy";
  check_contiguous(buffer, kWhat, "the buffer");
  TORCH_CHECK_VALUE(buffer.scalar_type() == local.scalar_type() && buffer.numel() >= local.numel(),
                    "symm_mem::", kWhat, " needs a buffer that holds the input: ", local.numel(),
                    " elements of ", local.scalar_type());
  const at::Tensor used = buffer.view({-1}).narrow(0, 0, local.numel());
  used.view(local.sizes()).copy_(local);
  one_shot_all_reduce_out(used, std::move(op), std::move(group), out);
  return out;
}

at::Tensor one_shot_all_reduce_copy(const at::Tensor& buffer, const at::Tensor& local,
                                    std::string op, std::string group) {
  return one_shot_all_reduce_copy_out(buffer, local, std::move(op), std::move(group),
                                      at::empty_like(local, at::MemoryFormat::Contiguous));
}

// Reduces the own share in place, which no other rank reads meanwhile, then collects the others.
at::Tensor two_shot_all_reduce_out(const at::Tensor& input, std::string op, std::string group,
                                   at::Tensor out) {
  constexpr const char* kWhat = "two_shot_all_reduce";
  check_contiguous(input, kWhat, "the input");
  check_like(out, input, input.numel(), kWhat);
  const Reducing reducing = reducing_of(op, input, kWhat);
  const auto memory = memory_of(input, group, kWhat);
  const int ranks = memory->get_world_size();
  const at::Tensor own = share_of(input, memory->get_rank(), ranks);
  Phase collect;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool in_place = rank == memory->get_rank() && out.is_alias_of(input);
    if (in_place) continue;
    collect.copies.push_back(
        {share_of(out, rank, ranks), counterpart(*memory, share_of(input, rank, ranks), rank)});
  }
  exchange(*memory, kWhat, {{.reductions = {{own, counterparts(*memory, own)}}}, collect},
           reducing);
  return out;
}

at::Tensor two_shot_all_reduce_(const at::Tensor& input, std::string op, std::string group) {
  return two_shot_all_reduce_out(input, std::move(op), std::move(group), input);
}

at::Tensor reduce_scatter_out(const at::Tensor& input, std::string group, bool split_last_dim,
                              at::Tensor out) {
  constexpr const char* kWhat = "reduce_scatter_out";
  check_contiguous(input, kWhat, "the input");
  const Reducing reducing = reducing_of("sum", input, kWhat);
  const auto memory = memory_of(input, group, kWhat);
  const int ranks = memory->get_world_size();
  const int64_t split = split_last_dim ? input.size(-1) : input.size(0);
  TORCH_CHECK_VALUE(split % ranks == 0, "symm_mem::", kWhat, " cannot cut ", split,
                    " into equal parts for ", ranks, " ranks");
  check_like(out, input, input.numel() / ranks, kWhat);
  const int64_t part = split / ranks;
  if (!split_last_dim) {
    const at::Tensor own = input.narrow(0, part * memory->get_rank(), part);
    exchange(*memory, kWhat, {{.reductions = {{out.view_as(own), counterparts(*memory, own)}}}},
             reducing);
    return out;
  }
  const at::Tensor own = input.view({-1, split}).narrow(1, part * memory->get_rank(), part);
  exchange(*memory, kWhat, {{.reductions = {{out.view_as(own), counterparts(*memory, own)}}}},
           reducing);
  return out;
}

at::Tensor low_contention_all_gather(const at::Tensor& input, std::string group) {
  constexpr const char* kWhat = "_low_contention_all_gather";
  check_contiguous(input, kWhat, "the input");
  const auto memory = memory_of(input, group, kWhat);
  const int ranks = memory->get_world_size();
  auto sizes = input.sizes().vec();
  TORCH_CHECK_VALUE(!sizes.empty(), "symm_mem::", kWhat, " needs a tensor with dimensions");
  sizes[0] *= ranks;
  const at::Tensor out = at::empty(sizes, input.options());
  const auto parts = out.chunk(ranks);
  const auto sources = counterparts(*memory, input);
  Phase phase;
  for (size_t rank = 0; rank < parts.size(); ++rank)
    phase.copies.push_back({parts[rank], sources[rank]});
  exchange(*memory, kWhat, {phase}, {});
  return out;
}

at::Tensor low_contention_reduce_scatter(const at::Tensor& input, std::string op,
                                         std::string group) {
  constexpr const char* kWhat = "_low_contention_reduce_scatter";
  check_contiguous(input, kWhat, "the input");
  const Reducing reducing = reducing_of(op, input, kWhat);
  const auto memory = memory_of(input, group, kWhat);
  const int ranks = memory->get_world_size();
  TORCH_CHECK_VALUE(input.dim() > 0 && input.size(0) % ranks == 0, "symm_mem::", kWhat,
                    " needs a first dimension that divides by the ", ranks, " ranks");
  const int64_t part = input.size(0) / ranks;
  const at::Tensor own = input.narrow(0, part * memory->get_rank(), part);
  const at::Tensor out = at::empty(own.sizes(), input.options());
  exchange(*memory, kWhat, {{.reductions = {{out, counterparts(*memory, own)}}}}, reducing);
  return out;
}

void multi_root_tile_reduce(const std::vector<at::Tensor>& tiles, const at::Tensor& out,
                            const std::vector<int64_t>& roots, std::string group, std::string op) {
  constexpr const char* kWhat = "tile_reduce";
  TORCH_CHECK_VALUE(!tiles.empty() && tiles.size() == roots.size(), "symm_mem::", kWhat,
                    " needs as many roots as tiles, and at least one");
  const Reducing reducing = reducing_of(op, tiles[0], kWhat);
  const auto memory = memory_of(tiles[0], group, kWhat);
  Phase phase;
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (roots[i] != memory->get_rank()) continue;
    TORCH_CHECK_VALUE(phase.reductions.empty(), "symm_mem::", kWhat, ": rank ", roots[i],
                      " is the root of two tiles and has one output");
    TORCH_CHECK_VALUE(
        out.sizes() == tiles[i].sizes() && out.scalar_type() == tiles[i].scalar_type(),
        "symm_mem::", kWhat, " needs an output like the tile of this rank");
    phase.reductions.push_back({out, counterparts(*memory, tiles[i])});
  }
  exchange(*memory, kWhat, {phase}, reducing);
}

void tile_reduce(const at::Tensor& tile, const at::Tensor& out, int64_t root, std::string group,
                 std::string op) {
  multi_root_tile_reduce({tile}, out, {root}, std::move(group), std::move(op));
}

std::vector<at::Tensor> get_remote_tensors(const at::Tensor& tensor, std::string group) {
  return counterparts(*memory_of(tensor, group, "get_remote_tensors"), tensor);
}

at::Tensor memset32_(const at::Tensor& input, int64_t offset, int64_t value, int64_t count) {
  TORCH_CHECK_VALUE(input.dim() == 1 && input.is_contiguous() && input.itemsize() == 4,
                    "symm_mem::memset32_ needs a contiguous 1-D tensor of 32-bit words");
  TORCH_CHECK_VALUE(value >= 0 && value <= UINT32_MAX, "symm_mem::memset32_: ", value,
                    " is no 32-bit word");
  TORCH_CHECK_VALUE(offset >= 0 && count > 0 && offset + count <= input.numel(),
                    "symm_mem::memset32_: words ", offset, " to ", offset + count - 1,
                    " are not all in a tensor of ", input.numel());
  const auto word = static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(value)));
  input.view(at::kInt).narrow(0, offset, count).fill_(word);
  return input;
}

at::Tensor stream_write_value32_(const at::Tensor& input, int64_t offset, int64_t value) {
  return memset32_(input, offset, value, 1);
}

void needs_multicast(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      " needs multicast memory, which hccl-like does not offer on any device; use "
      "symm_mem::one_shot_all_reduce, two_shot_all_reduce_, reduce_scatter_out or "
      "_low_contention_all_gather");
}

// Boxed kernel, which has no C++ signature. The dispatcher requires one signature per operator, and
// torch builds differ in it (CUDA builds use `at::Tensor&`).
template <auto kFunction>
struct Boxed;
template <class Result, class... Arguments, Result (*kFunction)(Arguments...)>
struct Boxed<kFunction> {
  static void call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    constexpr size_t kCount = sizeof...(Arguments);
    TORCH_CHECK(op.schema().arguments().size() == kCount, op.schema().name(), " takes ",
                op.schema().arguments().size(), " arguments in this build of torch and ", kCount,
                " in the one that hccl-like was built for; build hccl-like for this one");
    auto arguments = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      return std::tuple<std::decay_t<Arguments>...>(
          torch::jit::peek(*stack, kIndex, kCount).template to<std::decay_t<Arguments>>()...);
    }(std::index_sequence_for<Arguments...>());
    torch::jit::drop(*stack, kCount);
    if constexpr (std::is_void_v<Result>)
      std::apply(kFunction, std::move(arguments));
    else
      torch::jit::push(*stack, std::apply(kFunction, std::move(arguments)));
  }
};

template <auto kFunction>
c10::BoxedKernel boxed() {
  return c10::BoxedKernel::makeFromFunction<&Boxed<kFunction>::call>();
}

}  // namespace

void register_symmetric_operators(c10::DeviceType type) {
  const auto key = type == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  // Leaked: destroying a Library removes its registrations.
  auto& library = *new torch::Library(torch::Library::IMPL, "symm_mem", key, __FILE__, __LINE__);
  const auto add = [&](const char* name, c10::BoxedKernel kernel) {
    const auto op =
        c10::Dispatcher::singleton().findOp({std::string("symm_mem::") + name, /*overload=*/""});
    if (op && op->hasKernelForDispatchKey(key)) return;  // a vendor's kernel has priority
    library.impl(name, torch::CppFunction::makeFromBoxedKernel(std::move(kernel)));
  };
  add("one_shot_all_reduce", boxed<&one_shot_all_reduce>());
  add("one_shot_all_reduce_out", boxed<&one_shot_all_reduce_out>());
  add("one_shot_all_reduce_copy", boxed<&one_shot_all_reduce_copy>());
  add("one_shot_all_reduce_copy_out", boxed<&one_shot_all_reduce_copy_out>());
  add("two_shot_all_reduce_", boxed<&two_shot_all_reduce_>());
  add("two_shot_all_reduce_out", boxed<&two_shot_all_reduce_out>());
  add("reduce_scatter_out", boxed<&reduce_scatter_out>());
  add("_low_contention_all_gather", boxed<&low_contention_all_gather>());
  add("_low_contention_reduce_scatter", boxed<&low_contention_reduce_scatter>());
  add("tile_reduce", boxed<&tile_reduce>());
  add("multi_root_tile_reduce", boxed<&multi_root_tile_reduce>());
  add("get_remote_tensors", boxed<&get_remote_tensors>());
  add("memset32_", boxed<&memset32_>());
  add("stream_write_value32_", boxed<&stream_write_value32_>());
  for (const char* name :
       {"multimem_all_reduce_", "multimem_one_shot_all_reduce", "multimem_one_shot_all_reduce_out",
        "multimem_one_shot_reduce_out", "multimem_all_gather_out"})
    add(name, c10::BoxedKernel::makeFromFunction<&needs_multicast>());
}

}  // namespace hccl_like
