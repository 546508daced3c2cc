// all_gather, gather and scatter.
#include "core/error.h"
#include "process_group/calls.h"

namespace hccl_like {
namespace {

std::string as_many_as(const at::Tensor& tensor) { return "as many as in " + describe(tensor); }

// The tensors of a nested list that only the root passes: elsewhere it is empty, or holds an empty list.
const Tensors& roots_list(const NestedTensors& lists, bool is_root, int size, const char* what) {
  static const Tensors none;
  if (!is_root) {
    if (lists.size() > 1 || (lists.size() == 1 && !lists.front().empty())) {
      throw_misuse(std::string("only the root passes ") + what + "; pass None on the other ranks");
    }
    return none;
  }
  if (lists.size() != 1 || lists.front().size() != static_cast<size_t>(size)) {
    throw_misuse("the root must pass a list of " + std::to_string(size) + " " + what +
                 ", one for each rank");
  }
  return lists.front();
}

void check_alike(const Tensors& tensors, const at::Tensor& model, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    check_same_type(tensor, model);
    check_elements(tensor, what, model.numel(), as_many_as(model));
  }
}

// One tensor of each rank goes to all, into outputs[rank].
Request gather_request(const Tensors& outputs, const at::Tensor& input, Place place) {
  check_count(outputs.size(), static_cast<size_t>(place.size),
              "output tensors, one for each rank,");
  for (const at::Tensor& output : outputs) check_same_type(output, input);
  check_elements(outputs[static_cast<size_t>(place.rank)], "this rank's output", input.numel(),
                 as_many_as(input));
  return {.collective = Collective::kAllGather,
          .type = carrier_type(outputs),
          .input = {{input}, Arrangement::kOwn},
          .output = {outputs, Arrangement::kPerRank}};
}

}  // namespace

Issue all_gather(const NestedTensors& outputs, const Tensors& inputs,
                 const c10d::AllgatherOptions& options, Place place) {
  const at::Tensor& input = only(inputs);
  check_count(outputs.size(), 1, "lists of outputs");
  const auto device = check_tensors(inputs, outputs.front());
  // Not inside the braces below: what throws there is cleaned up twice by some compilers (GCC 12).
  Request request = gather_request(outputs.front(), input, place);
  return {.description = {"hccl-like:all_gather", c10d::OpType::ALLGATHER, inputs, outputs.front()},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue all_gather_single(const at::Tensor& output, const at::Tensor& input,
                        const c10d::AllgatherOptions& options, Place place) {
  Issue issue = all_gather_coalesced({output}, {input}, options, place);
  issue.description.title = "hccl-like:_all_gather_base";
  issue.description.type = c10d::OpType::_ALLGATHER_BASE;
  return issue;
}

Issue all_gather_lists(const NestedTensors& outputs, const Tensors& inputs,
                       const c10d::AllgatherOptions& options, Place place) {
  check_count(outputs.size(), static_cast<size_t>(place.size),
              "lists of outputs, one for each rank,");
  Tensors all;
  for (const Tensors& list : outputs) {
    check_count(list.size(), inputs.size(), "outputs from each rank, one for each input,");
    all.insert(all.end(), list.begin(), list.end());
  }
  Issue issue{.description = {"hccl-like:all_gather_coalesced", c10d::OpType::ALLGATHER_COALESCED,
                              inputs, all},
              .device = check_tensors(inputs, all),
              .timeout = options.timeout,
              .async = options.asyncOp};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_ranks;
    for (const Tensors& list : outputs) from_ranks.push_back(list[i]);
    issue.requests.push_back(gather_request(from_ranks, inputs[i], place));
  }
  return issue;
}

Issue all_gather_coalesced(const Tensors& outputs, const Tensors& inputs,
                           const c10d::AllgatherOptions& options, Place place) {
  check_count(outputs.size(), inputs.size(), "outputs, one for each input,");
  const auto device = check_tensors(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(outputs[i], inputs[i]);
    check_elements(outputs[i], "the output", inputs[i].numel() * place.size,
                   std::to_string(inputs[i].numel()) + " from each of the " +
                       std::to_string(place.size) + " ranks");
  }
  Request request{.collective = Collective::kAllGather,
                  .type = carrier_type(inputs),
                  .input = {inputs, Arrangement::kOwn},
                  .output = {outputs, Arrangement::kCut}};
  return {.description = {"hccl-like:all_gather_into_tensor_coalesced", c10d::OpType::COALESCED,
                          inputs, outputs},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue gather(const NestedTensors& outputs, const Tensors& inputs,
             const c10d::GatherOptions& options, Place place) {
  const at::Tensor& input = only(inputs);
  const auto root = static_cast<int>(options.rootRank);
  const Tensors& list = roots_list(outputs, root == place.rank, place.size, "output tensors");
  const auto device = check_tensors(inputs, list);
  check_alike(list, input, "an output");
  Request request{.collective = Collective::kGather,
                  .type = carrier_type(inputs),
                  .root = root,
                  .input = {inputs, Arrangement::kOwn}};
  if (root == place.rank) request.output = {list, Arrangement::kPerRank};
  return {.description = {"hccl-like:gather", c10d::OpType::GATHER, inputs, list},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue scatter(const Tensors& outputs, const NestedTensors& inputs,
              const c10d::ScatterOptions& options, Place place) {
  const at::Tensor& output = only(outputs);
  const auto root = static_cast<int>(options.rootRank);
  const Tensors& list = roots_list(inputs, root == place.rank, place.size, "input tensors");
  const auto device = check_tensors(list, outputs);
  check_alike(list, output, "an input");
  Request request{.collective = Collective::kScatter,
                  .type = carrier_type(outputs),
                  .root = root,
                  .output = {outputs, Arrangement::kOwn}};
  if (root == place.rank) request.input = {list, Arrangement::kPerRank};
  return {.description = {"hccl-like:scatter", c10d::OpType::SCATTER, list, outputs},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

}  // namespace hccl_like
