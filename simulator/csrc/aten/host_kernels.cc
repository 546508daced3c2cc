// Operators for which torch would not come to the fall-back: they have a general implementation out
// of other operators, or one that vendors are expected to override. The host's own kernel is
// faster, and gives the host's results bit for bit.
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/lending.h"

namespace torch_sim {
namespace {

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// Takes the arguments of `convolution`, and means the same.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto op = find("aten::convolution");
  run_on_host(op, stack);
}

// `convolution_backward` also wants to know the bias' sizes: one for each output channel, which the
// first dimension of the weight counts, or, transposed, the second one times the groups.
void convolution_backward(const c10::OperatorHandle& self, torch::jit::Stack* stack) {
  static const auto op = find("aten::convolution_backward");
  const size_t first = stack->size() - self.schema().arguments().size();
  const at::Tensor& weight = (*stack)[first + 2].toTensor();
  const bool transposed = (*stack)[first + 6].toBool();
  const int64_t groups = (*stack)[first + 8].toInt();
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  stack->insert(stack->begin() + static_cast<ptrdiff_t>(first) + 3,
                c10::IValue(std::vector<int64_t>{channels}));
  run_on_host(op, stack);
}

// Whether a padded batch can become a nested tensor, for a transformer's short cut. There are none
// here: the padding stays.
bool can_be_nested(const at::Tensor&, const at::Tensor&) { return false; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask_left_aligned", can_be_nested);
  for (const char* name :
       {"native_layer_norm", "native_group_norm", "native_channel_shuffle", "silu_backward",
        "mish_backward", "_stack", "_stack.out", "addr", "addr.out", "linalg__powsum"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

// Attention takes the way it would take on the host; its kernels then come to the fall-back.
int64_t attention_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  if (mask && mask->requires_grad()) return static_cast<int64_t>(sdp::SDPBackend::math);
  Lending lending;
  return at::_fused_sdp_choice(lending.lend(query), lending.lend(key), lending.lend(value),
                               mask ? std::optional(lending.lend(*mask)) : std::nullopt, dropout,
                               is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace torch_sim

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_sim::attention_choice)

}  // namespace at::native
