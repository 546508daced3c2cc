// Batch normalisation in the steps of nn.SyncBatchNorm: the statistics of one rank, those of all
// ranks together, and the same for gradients. torch has kernels of them for GPUs only, so there is
// nothing on the host to fall back to. They are put together from other operators here, on tensors
// of the device, in the accumulation type (float32 for half precision).
#include <ATen/AccumulateType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

namespace torch_sim {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

c10::ScalarType accumulation_type(const Tensor& tensor) {
  return at::toAccumulateType(tensor.scalar_type(), /*is_cuda=*/true);
}

Tensor accumulating(const Tensor& tensor) { return tensor.to(accumulation_type(tensor)); }

bool given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

// Every dimension but that of the channels.
c10::DimVector all_but_channels(const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "batch norm expects a batch and channels, not a tensor of ",
              input.dim(), " dimensions");
  c10::DimVector dims{0};
  for (int64_t i = 2; i < input.dim(); ++i) dims.push_back(i);
  return dims;
}

// One value a channel, so that it broadcasts over the input.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  c10::DimVector shape(input.dim(), 1);
  shape[1] = values.numel();
  return accumulating(values).view(shape);
}

Tensor like_input(const Tensor& result, const Tensor& input) {
  return at::empty_like(input, input.suggest_memory_format()).copy_(result);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  const auto [var, mean] = at::var_mean(accumulating(input), all_but_channels(input),
                                        /*correction=*/0, /*keepdim=*/false);
  return {mean, at::rsqrt(var + eps)};
}

Tensor elemt(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
             const Tensor& mean, const Tensor& invstd, double eps) {
  Tensor result = (accumulating(input) - per_channel(mean, input)) * per_channel(invstd, input);
  if (given(weight)) result = result * per_channel(*weight, input);
  if (given(bias)) result = result + per_channel(*bias, input);
  return like_input(result, input);
}

Tensor& elemt_out(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const Tensor& mean, const Tensor& invstd, double eps, Tensor& out) {
  return out.copy_(elemt(input, weight, bias, mean, invstd, eps));
}

void move_towards(const OptionalTensor& running, const Tensor& value, double momentum) {
  if (given(running)) running->copy_(accumulating(*running) * (1 - momentum) + value * momentum);
}

// `mean` and `invstd` have a row for each rank, `counts` how many values a channel each rank had.
// The spread of all values is that within the ranks and that between their means.
std::tuple<Tensor, Tensor> gather_stats_with_counts(const Tensor& input, const Tensor& mean,
                                                    const Tensor& invstd,
                                                    const OptionalTensor& running_mean,
                                                    const OptionalTensor& running_var,
                                                    double momentum, double eps,
                                                    const Tensor& counts) {
  const Tensor means = accumulating(mean);
  const Tensor vars = accumulating(invstd).pow(-2) - eps;
  const Tensor weights = counts.to(means.scalar_type()).view({-1, 1});
  const Tensor total = weights.sum();
  const Tensor all_mean = (means * weights).sum(0) / total;
  const Tensor squares = ((vars + (means - all_mean).square()) * weights).sum(0);
  move_towards(running_mean, all_mean, momentum);
  move_towards(running_var, squares / (total - 1), momentum);
  return {all_mean, at::rsqrt(squares / total + eps)};
}

std::tuple<Tensor, Tensor> gather_stats(const Tensor& input, const Tensor& mean,
                                        const Tensor& invstd, const OptionalTensor& running_mean,
                                        const OptionalTensor& running_var, double momentum,
                                        double eps, int64_t count) {
  const Tensor counts =
      at::full({mean.size(0)}, count, mean.options().dtype(accumulation_type(mean)));
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                                  counts);
}

// Per channel: the sum of the gradients, that of the gradients times the distance from the mean,
// and what follows from them for weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(
    const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
    const OptionalTensor& weight, bool input_g, bool weight_g, bool bias_g) {
  const auto dims = all_but_channels(input);
  const Tensor gradient = accumulating(grad_out);
  const Tensor sum_dy = gradient.sum(dims);
  const Tensor sum_dy_xmu = (gradient * (accumulating(input) - per_channel(mean, input))).sum(dims);
  const auto type = given(weight) ? weight->scalar_type() : mean.scalar_type();
  return {
      input_g ? sum_dy.to(mean.scalar_type()) : Tensor(),
      input_g ? sum_dy_xmu.to(mean.scalar_type()) : Tensor(),
      weight_g ? (sum_dy_xmu * invstd).to(type, /*non_blocking=*/false, /*copy=*/true) : Tensor(),
      bias_g ? sum_dy.to(type, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

// `sum_dy` and `sum_dy_xmu` are those of all ranks together, `count` has what each of them had.
Tensor backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                      const Tensor& invstd, const OptionalTensor& weight, const Tensor& sum_dy,
                      const Tensor& sum_dy_xmu, const Tensor& count) {
  const Tensor total = count.sum().to(accumulation_type(mean));
  const Tensor scale = per_channel(invstd, input);
  const Tensor mean_dy = per_channel(sum_dy / total, input);
  const Tensor slope = per_channel(sum_dy_xmu / total, input) * scale.square();
  Tensor result = (accumulating(grad_out) - mean_dy -
                   (accumulating(input) - per_channel(mean, input)) * slope) *
                  scale;
  if (given(weight)) result = result * per_channel(*weight, input);
  return like_input(result, input);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", stats);
  m.impl("batch_norm_elemt", elemt);
  m.impl("batch_norm_elemt.out", elemt_out);
  m.impl("batch_norm_gather_stats", gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", gather_stats_with_counts);
  m.impl("batch_norm_backward_reduce", backward_reduce);
  m.impl("batch_norm_backward_elemt", backward_elemt);
}

}  // namespace
}  // namespace torch_sim
