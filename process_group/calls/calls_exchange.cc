// all_to_all, send, receive and barrier.
#include <numeric>

#include "core/base/error.h"
#include "process_group/calls/calls.h"

namespace hccl_like {
namespace {

// Checks the rows of the first dimension that each rank sends or receives.
void check_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* what,
                  int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % size == 0) return;
    throw_misuse(std::string("the ") + what + " " + describe(tensor) + " cannot be cut in " +
                 std::to_string(size) + " equal parts along its first dimension; pass split sizes");
  }
  check_count(splits.size(), static_cast<size_t>(size), "split sizes, one for each rank,");
  for (const int64_t split : splits) {
    if (split < 0) throw_misuse("a split size is negative; sizes are numbers of rows");
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  if (sum != rows) {
    throw_misuse(std::string("the split sizes of the ") + what + " add up to " +
                 std::to_string(sum) + ", but " + describe(tensor) + " has " +
                 std::to_string(rows) + " rows");
  }
}

Side split_side(const at::Tensor& tensor, std::vector<int64_t> splits, bool even, int size) {
  if (even) return {tensor, Arrangement::kCut, {}};
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) splits.assign(static_cast<size_t>(size), rows / size);
  return {tensor, Arrangement::kSplits, std::move(splits)};
}

Issue message(Collective collective, const char* title, c10d::OpType type, at::TensorList tensors,
              int peer, int tag) {
  only(tensors);
  if (tag < 0) throw_misuse("a tag must not be negative, got " + std::to_string(tag));
  Request request{.collective = collective,
                  .type = carrier_type(tensors),
                  .root = peer,
                  .tag = static_cast<uint32_t>(tag)};
  const bool sends = collective == Collective::kSend;
  const at::TensorList none;
  (sends ? request.input : request.output) = {tensors, Arrangement::kWhole, {}};
  return {.description = {title, type, tensors, tensors},
          .device = check_tensors(sends ? tensors : none, sends ? none : tensors),
          .requests = {std::move(request)}};
}

}  // namespace

// List calls are always uneven: a rank does not know the sizes of its peers' parts.
Issue all_to_all(const Tensors& outputs, const Tensors& inputs,
                 const c10d::AllToAllOptions& options, RankInfo self) {
  check_count(inputs.size(), static_cast<size_t>(self.size), "input tensors, one for each rank,");
  check_count(outputs.size(), static_cast<size_t>(self.size), "output tensors, one for each rank,");
  const auto device = check_tensors(inputs, outputs);
  for (const at::Tensor& tensor : inputs) check_same_type(tensor, inputs.front());
  for (const at::Tensor& tensor : outputs) check_same_type(tensor, inputs.front());
  const auto own = static_cast<size_t>(self.rank);
  check_elements(outputs[own], "this rank's output", inputs[own].numel(),
                 [] { return std::string("as many as in this rank's input"); });
  Request request{.collective = Collective::kAllToAll,
                  .type = carrier_type(inputs),
                  .uneven = true,
                  .input = {inputs, Arrangement::kPerRank, {}},
                  .output = {outputs, Arrangement::kPerRank, {}}};
  return {.description = {"hccl-like:all_to_all", c10d::OpType::ALLTOALL, inputs, outputs},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                        std::vector<int64_t> output_splits, std::vector<int64_t> input_splits,
                        const c10d::AllToAllOptions& options, RankInfo self) {
  const auto device = check_tensors(input, output);
  check_same_type(input, output);
  check_splits(input, input_splits, "input", self.size);
  check_splits(output, output_splits, "output", self.size);
  const bool even = input_splits.empty() && output_splits.empty();
  if (even)
    check_elements(output, "the output", input.numel(), [] {
      return std::string("as many as in the input, when no split sizes are given");
    });
  Request request{.collective = Collective::kAllToAll,
                  .type = carrier_type(input),
                  .uneven = !even,
                  .input = split_side(input, std::move(input_splits), even, self.size),
                  .output = split_side(output, std::move(output_splits), even, self.size)};
  return {.description = {"hccl-like:all_to_all", c10d::OpType::ALLTOALL_BASE, input, output},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue send(const Tensors& tensors, int to, int tag) {
  return message(Collective::kSend, "hccl-like:send", c10d::OpType::SEND, tensors, to, tag);
}

Issue receive(const Tensors& tensors, int from, int tag) {
  if (from == kAnySource) {
    return message(Collective::kRecv, "hccl-like:recvAnySource", c10d::OpType::RECVANYSOURCE,
                   tensors, from, tag);
  }
  return message(Collective::kRecv, "hccl-like:recv", c10d::OpType::RECV, tensors, from, tag);
}

Issue barrier(const c10d::BarrierOptions& options, c10::Device device) {
  return {.description = {"hccl-like:barrier", c10d::OpType::BARRIER, {}, {}},
          .device = device,
          .requests = {Request{.collective = Collective::kBarrier}},
          .timeout = options.timeout,
          .async = options.asyncOp,
          .blocking = true};
}

}  // namespace hccl_like
