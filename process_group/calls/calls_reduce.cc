// all_reduce, reduce, broadcast and reduce_scatter.
#include <map>

#include "core/base/error.h"
#include "process_group/calls/calls.h"
#include "process_group/calls/reduce_op.h"

namespace hccl_like {
namespace {

Request reduction_request(Collective collective, const c10d::ReduceOp& op, c10::ScalarType type) {
  const Reducing reduced = reducing(op, type);
  return {
      .collective = collective, .type = reduced.type, .op = reduced.op, .factor = reduced.factor};
}

void check_parts(const at::Tensor& input, const at::Tensor& part, int size) {
  check_elements(input, "the input", part.numel() * size, [&] {
    return std::to_string(part.numel()) + " for each of the " + std::to_string(size) + " ranks";
  });
}

// One request computes in one data type.
struct OneType {
  Tensors inputs;
  Tensors outputs;
};
std::map<c10::ScalarType, OneType> by_type(at::TensorList inputs, at::TensorList outputs) {
  std::map<c10::ScalarType, OneType> groups;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(inputs[i], outputs[i]);
    OneType& group = groups[inputs[i].scalar_type()];
    group.inputs.push_back(inputs[i]);
    group.outputs.push_back(outputs[i]);
  }
  return groups;
}

}  // namespace

Issue all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  const auto device = check_tensors(tensors, tensors);
  Request request =
      reduction_request(Collective::kAllReduce, options.reduceOp, tensor.scalar_type());
  request.input = request.output = {tensors, Arrangement::kWhole, {}};
  return {.description = {"hccl-like:all_reduce", c10d::OpType::ALLREDUCE, tensors, tensors},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue all_reduce_coalesced(const Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Issue issue{.description = {"hccl-like:all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED,
                              tensors, tensors},
              .device = check_tensors(tensors, tensors),
              .timeout = options.timeout,
              .async = options.asyncOp};
  for (auto& [type, group] : by_type(tensors, tensors)) {
    Request request = reduction_request(Collective::kAllReduce, options.reduceOp, type);
    request.input = request.output = {issue.keep(std::move(group.inputs)), Arrangement::kWhole, {}};
    issue.requests.push_back(std::move(request));
  }
  return issue;
}

Issue reduce(const Tensors& tensors, const c10d::ReduceOptions& options, RankInfo self) {
  const at::Tensor& tensor = only(tensors);
  const auto device = check_tensors(tensors, tensors);
  Request request = reduction_request(Collective::kReduce, options.reduceOp, tensor.scalar_type());
  request.root = static_cast<int>(options.rootRank);
  request.input = {tensors, Arrangement::kWhole, {}};
  // Only the root's tensor is written.
  if (request.root == self.rank) request.output = request.input;
  return {.description = {"hccl-like:reduce", c10d::OpType::REDUCE, tensors, tensors},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue broadcast(const Tensors& tensors, const c10d::BroadcastOptions& options) {
  only(tensors);
  Request request{.collective = Collective::kBroadcast,
                  .type = carrier_type(tensors),
                  .root = static_cast<int>(options.rootRank)};
  request.input = request.output = {tensors, Arrangement::kWhole, {}};
  return {.description = {"hccl-like:broadcast", c10d::OpType::BROADCAST, tensors, tensors},
          .device = check_tensors(tensors, tensors),
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue reduce_scatter(const Tensors& outputs, const NestedTensors& inputs,
                     const c10d::ReduceScatterOptions& options, RankInfo self) {
  const at::Tensor& output = only(outputs);
  check_count(inputs.size(), 1, "lists of inputs");
  const Tensors& parts = inputs.front();
  check_count(parts.size(), static_cast<size_t>(self.size), "input tensors, one for each rank,");
  const auto device = check_tensors(parts, outputs);
  for (const at::Tensor& part : parts) check_same_type(part, output);
  const at::Tensor& own = parts[static_cast<size_t>(self.rank)];
  check_elements(output, "the output", own.numel(),
                 [&] { return "as many as in input " + std::to_string(self.rank); });
  Request request =
      reduction_request(Collective::kReduceScatter, options.reduceOp, output.scalar_type());
  request.input = {parts, Arrangement::kPerRank, {}};
  request.output = {outputs, Arrangement::kOwn, {}};
  return {.description = {"hccl-like:reduce_scatter", c10d::OpType::REDUCE_SCATTER, parts, outputs},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                            const c10d::ReduceScatterOptions& options, RankInfo self) {
  Issue issue = reduce_scatter_coalesced(output, input, options, self);
  issue.description.title = "hccl-like:_reduce_scatter_base";
  issue.description.type = c10d::OpType::_REDUCE_SCATTER_BASE;
  return issue;
}

namespace {

// torch 2.11 lacks this OpType.
template <class Type>
constexpr Type reduce_scatter_coalesced_type() {
  if constexpr (requires { Type::REDUCE_SCATTER_TENSOR_COALESCED; })
    return Type::REDUCE_SCATTER_TENSOR_COALESCED;
  else
    return Type::COALESCED;
}

}  // namespace

Issue reduce_scatter_coalesced(at::TensorList outputs, at::TensorList inputs,
                               const c10d::ReduceScatterOptions& options, RankInfo self) {
  check_count(outputs.size(), inputs.size(), "outputs, one for each input,");
  Issue issue{.description = {"hccl-like:reduce_scatter_tensor_coalesced",
                              reduce_scatter_coalesced_type<c10d::OpType>(), inputs, outputs},
              .device = check_tensors(inputs, outputs),
              .timeout = options.timeout,
              .async = options.asyncOp};
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], self.size);
  }
  const auto add = [&](c10::ScalarType type, at::TensorList from, at::TensorList to) {
    Request request = reduction_request(Collective::kReduceScatter, options.reduceOp, type);
    request.input = {from, Arrangement::kCut, {}};
    request.output = {to, Arrangement::kOwn, {}};
    issue.requests.push_back(std::move(request));
  };
  if (inputs.size() == 1) {
    check_same_type(inputs[0], outputs[0]);
    add(inputs[0].scalar_type(), inputs, outputs);
    return issue;
  }
  for (auto& [type, group] : by_type(inputs, outputs))
    add(type, issue.keep(std::move(group.inputs)), issue.keep(std::move(group.outputs)));
  return issue;
}

}  // namespace hccl_like
