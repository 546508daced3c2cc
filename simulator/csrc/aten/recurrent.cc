// Cells of LSTM and GRU: torch asks accelerators for them in one piece, where on the host it puts
// them together. The same pieces in the host's order, on tensors of the device.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace torch_sim {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// Multiplies a gradient by the derivative of the function whose result is `y`.
Tensor through_sigmoid(const Tensor& gradient, const Tensor& y) { return gradient * (1 - y) * y; }
Tensor through_tanh(const Tensor& gradient, const Tensor& y) { return gradient * (1 - y * y); }

// Workspace: the four gates after their functions.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const auto gates = (with_bias(hidden_gates, hidden_bias) + with_bias(input_gates, input_bias))
                         .unsafe_chunk(4, 1);
  const Tensor in = at::sigmoid(gates[0]), forget = at::sigmoid(gates[1]),
               cell = at::tanh(gates[2]), out = at::sigmoid(gates[3]);
  const Tensor cy = (forget * cx).add_(in * cell);
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined(), has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor gh = has_hy ? *grad_hy : at::zeros_like(cy);
  const Tensor squashed = cy.tanh();
  const Tensor through_output = through_tanh(gh * out, squashed);
  const Tensor gc = has_cy ? through_output + *grad_cy : through_output;
  const Tensor grad_gates =
      at::cat({through_sigmoid(gc * cell, in), through_sigmoid(gc * cx, forget),
               through_tanh(gc * in, cell), through_sigmoid(gh * squashed, out)},
              1);
  return {grad_gates, gc * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

// Workspace: the reset, update and new gates after their functions, the state before, and the new
// gate's hidden part.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  const auto in = with_bias(input_gates, input_bias).unsafe_chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const Tensor reset = at::sigmoid(hidden[0] + in[0]), update = at::sigmoid(hidden[1] + in[1]);
  const Tensor fresh = at::tanh(in[2] + hidden[2] * reset);
  return {(hx - fresh) * update + fresh, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3],
               &hidden_new = saved[4];
  const Tensor g_update = through_sigmoid(grad_hy * (hx - fresh), update);
  const Tensor g_new = through_tanh(grad_hy * (1 - update), fresh);
  const Tensor g_reset = through_sigmoid(g_new * hidden_new, reset);
  const Tensor g_input = at::cat({g_reset, g_update, g_new}, 1),
               g_hidden = at::cat({g_reset, g_update, g_new * reset}, 1);
  return {g_input, g_hidden, grad_hy * update, has_bias ? g_input.sum(0) : Tensor(),
          has_bias ? g_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace
}  // namespace torch_sim
