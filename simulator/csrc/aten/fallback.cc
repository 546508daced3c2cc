// Every operator that has no kernel of its own here: the host's kernel works on the device's memory
// in its stream's turn.
#include "aten/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "aten/cpu_memory.h"
#include "aten/lending.h"
#include "aten/random.h"
#include "base/flaws.h"
#include "glue/convert.h"
#include "runtime/capture.h"

namespace torch_sim {
namespace {

using Stack = torch::jit::Stack;

// Lends all tensors among the arguments and replaces devices by the host. Returns the device asked
// for, if any was.
std::optional<c10::Device> lend_arguments(c10::ArrayRef<c10::IValue> arguments, Stack& stack,
                                          Lending& lending) {
  std::optional<c10::Device> asked;
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      value = lending.lend(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> lent;
      for (const at::Tensor& tensor : value.toTensorVector()) lent.push_back(lending.lend(tensor));
      value = std::move(lent);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> lent;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        lent.push_back(tensor ? std::optional(lending.lend(*tensor)) : std::nullopt);
      value = std::move(lent);
    } else if (value.isDevice()) {
      asked = value.toDevice();
      value = c10::Device(c10::DeviceType::CPU);
    }
  }
  return asked;
}

void take_results(size_t count, Stack& stack, Lending& lending, int device) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isTensor()) {
      value = lending.take(value.toTensor(), device);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> taken;
      for (const at::Tensor& tensor : value.toTensorVector())
        taken.push_back(lending.take(tensor, device));
      value = std::move(taken);
    }
  }
}

size_t bytes_on_device(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return 0;
  if (!tensor.is_sparse()) return tensor.nbytes();
  const at::SparseTensorImpl* const impl = at::sparse::get_sparse_impl(tensor);
  return bytes_on_device(impl->indices()) + bytes_on_device(impl->values());
}

size_t bytes_on_device(const c10::IValue& value) {
  if (value.isTensor()) return bytes_on_device(value.toTensor());
  size_t bytes = 0;
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += bytes_on_device(tensor);
  return bytes;
}

// Of what an operator writes that returns nothing.
size_t bytes_written(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  size_t bytes = 0;
  for (size_t i = 0; schema.returns().empty() && i < arguments.size(); ++i)
    if (const auto* alias = schema.arguments()[i].alias_info(); alias && alias->isWrite())
      bytes += bytes_on_device(arguments[i]);
  return bytes;
}

// Results that share memory with an argument they do not change: no data is touched and no stream
// need be waited for.
bool is_view_operator(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && returns[0].alias_info() && !returns[0].alias_info()->isWrite();
}

void for_each_tensor(const c10::IValue& value, auto&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) visit(*tensor);
  }
}

// Host tensors over the same memory; nothing for other values.
c10::IValue on_host(const c10::IValue& value) {
  const auto view = [](const at::Tensor& tensor) {
    TORCH_CHECK_NOT_IMPLEMENTED(!tensor.defined() || !tensor.is_sparse(),
                                "sim: sparse tensors cannot be captured in a graph");
    return tensor.defined() ? host_view(tensor, host_storage(tensor)) : tensor;
  };
  if (value.isTensor()) return view(value.toTensor());
  if (!value.isTensorList()) return {};
  c10::List<at::Tensor> views;
  for (const at::Tensor& tensor : value.toTensorVector()) views.push_back(view(tensor));
  return views;
}

void check_capturable(const c10::OperatorHandle& op, c10::DispatchKey host) {
  TORCH_CHECK_NOT_IMPLEMENTED(host == c10::DispatchKey::CPU, "sim: ", op.schema().name(),
                              " of sparse tensors cannot be captured in a graph");
  TORCH_CHECK(
      !op.hasTag(at::Tag::data_dependent_output) && !op.hasTag(at::Tag::dynamic_output_shape),
      "sim: the host waits for the result of ", op.schema().name(),
      ", which the capture of a graph does not allow");
}

// A kernel as a graph runs it: with the same arguments, and its results go where those of the first
// run went.
struct CapturedKernel {
  c10::OperatorHandle op;
  c10::DispatchKey host;
  int device;
  Stack arguments;  // the kernel's own
  Stack results;    // host tensors over the memory of the results; nothing for an argument
  size_t bytes, peers;

  void operator()() const {
    WorkTime time(device);
    time.kernel(bytes, peers);
    std::vector<Window> windows;
    for (const Stack* values : {&arguments, &results})
      for (const c10::IValue& value : *values)
        for_each_tensor(value, [&](const at::Tensor& tensor) {
          if (tensor.defined() && tensor.storage().data() != nullptr)
            windows.emplace_back(tensor.storage().data(), tensor.storage().nbytes());
        });
    const at::AutoDispatchBelowADInplaceOrView unseen;
    Stack stack = arguments;
    op.redispatchBoxed(c10::DispatchKeySet(host), &stack);
    for (size_t i = 0; i < results.size(); ++i) {
      std::vector<at::Tensor> fresh;
      for_each_tensor(stack[i], [&](const at::Tensor& tensor) { fresh.push_back(tensor); });
      auto next = fresh.begin();
      for_each_tensor(results[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) tensor.copy_(*next);
        ++next;
      });
    }
  }
};

// Saves the memory that a kernel overwrites; put_back() restores it.
class Overwritten {
 public:
  Overwritten(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i)
      if (const auto* alias = schema.arguments()[i].alias_info(); alias && alias->isWrite())
        for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
          const auto* const data = static_cast<const std::byte*>(tensor.storage().data());
          saved_.emplace_back(tensor.storage(),
                              std::vector(data, data + tensor.storage().nbytes()));
        });
  }
  void put_back() const {
    for (const auto& [storage, bytes] : saved_)
      std::memcpy(storage.mutable_data(), bytes.data(), std::min(bytes.size(), storage.nbytes()));
  }

 private:
  std::vector<std::pair<c10::Storage, std::vector<std::byte>>> saved_;
};

// Operators that take host tensors beside the device's on real accelerators as well: indices, step
// counts, lengths.
bool may_mix_with_host(const std::string& name) {
  constexpr std::string_view kPrefixes[] = {
      "aten::index",       "aten::_index_put_impl_", "aten::_unsafe_index",
      "aten::_foreach",    "aten::_fused",           "aten::_pack_padded",
      "aten::_pad_packed", "aten::tensor_split",     "aten::_amp"};
  if (name.rfind("aten::", 0) != 0) return true;
  for (const std::string_view prefix : kPrefixes)
    if (name.compare(0, prefix.size(), prefix) == 0) return true;
  return false;
}

}  // namespace

namespace {

void run_kernel_of(c10::DispatchKey host, const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!is_view_operator(schema)) check_offered(schema.name());
  // Their kernels would keep what was only lent, and a process group that serves the device brings
  // its own.
  TORCH_CHECK_NOT_IMPLEMENTED(
      schema.name().rfind("c10d::", 0) != 0, schema.name(),
      ": the process group's backend has no kernel for tensors like these on sim");
  Lending lending;
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  size_t result = bytes_written(schema, arguments);
  const std::optional<c10::Device> asked = lend_arguments(arguments, *stack, lending);
  const int device = lending.device() >= 0 ? lending.device()
                     : asked               ? index_of(*asked)
                                           : current_device();
  TORCH_CHECK(!lending.saw_host_tensor() || may_mix_with_host(schema.name()),
              "Expected all tensors to be on the same device, but found at least two devices, sim:",
              device, " and cpu! (", schema.name(), ")");
  const c10::DeviceGuard guard(device_at(device));
  const auto call = [&] {
    const KernelMemory memory(device);
    const std::vector<Window> windows = lending.open();
    RandomNumbers random(op, *stack, device);
    op.redispatchBoxed(c10::DispatchKeySet(host), stack);
    random.finish(*stack);
    lending.settle();
    take_results(schema.returns().size(), *stack, lending, device);
  };
  const auto kernel = [&] {
    WorkTime time(device);
    const size_t peers = lending.in_peers(time);
    call();
    for (const c10::IValue& value : torch::jit::last(*stack, schema.returns().size()))
      result += bytes_on_device(value);
    time.kernel(result, peers);
  };
  if (is_view_operator(schema)) return call();
  Stream& stream = current_stream(device);
  const auto capture = stream.capture();
  if (!capture) return stream.run(kernel);
  check_capturable(op, host);
  // It is run for the kinds of its results, on whatever the memory has.
  const size_t first = stack->size() - schema.arguments().size();
  const WorkTime no_time(device);
  CapturedKernel captured{
      .op = op,
      .host = host,
      .device = device,
      .arguments = Stack(stack->begin() + static_cast<ptrdiff_t>(first), stack->end()),
      .results = {},
      .bytes = result,
      .peers = lending.in_peers(no_time)};
  const std::vector<Window> windows = lending.open();
  const Overwritten overwritten(schema, captured.arguments);
  call();
  overwritten.put_back();
  const auto results = torch::jit::last(*stack, schema.returns().size());
  for (size_t i = 0; i < results.size(); ++i) {
    captured.bytes += bytes_on_device(results[i]);
    const bool is_argument = schema.returns()[i].alias_info() != nullptr;
    captured.results.push_back(is_argument ? c10::IValue() : on_host(results[i]));
  }
  capture->add(stream, std::move(captured));
}

}  // namespace

void check_offered(const std::string& name) {
  TORCH_CHECK_NOT_IMPLEMENTED(!has(Flaw::kNoOperators), "sim: there is no ", name);
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  run_kernel_of(c10::DispatchKey::CPU, op, stack);
}

void run_sparse_on_host(const c10::OperatorHandle& op, Stack* stack) {
  run_kernel_of(c10::DispatchKey::SparseCPU, op, stack);
}

namespace {

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
}

}  // namespace
}  // namespace torch_sim
