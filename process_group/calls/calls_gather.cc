// all_gather, gather and scatter.
#include "core/base/error.h"
#include "process_group/calls/calls.h"

namespace hccl_like {
namespace {

std::string as_many_as(const at::Tensor& tensor) { return "as many as in " + describe(tensor); }

// Returns the root's inner list. Non-root ranks pass an empty list or one empty inner list.
const Tensors& roots_list(const NestedTensors& lists, int64_t root, RankInfo self,
                          const char* what) {
  static const Tensors none;
  if (root != self.rank) {
    if (lists.size() > 1 || (lists.size() == 1 && !lists.front().empty())) {
      throw_misuse(std::string("only the root passes ") + what + "; pass None on the other ranks");
    }
    return none;
  }
  if (lists.size() != 1 || lists.front().size() != static_cast<size_t>(self.size)) {
    throw_misuse("the root must pass a list of " + std::to_string(self.size) + " " + what +
                 ", one for each rank");
  }
  return lists.front();
}

// gather or scatter without a title. `own` is this rank's tensor; `list` is empty on non-root
// ranks. Part sizes may differ; only the root and the peer know the size of a part.
template <class Options>
Issue rooted(Collective collective, const at::Tensor& own, const Tensors& list,
             const Options& options, RankInfo self) {
  const bool gathers = collective == Collective::kGather;
  const auto device = gathers ? check_tensors(own, list) : check_tensors(list, own);
  for (const at::Tensor& part : list) check_same_type(part, own);
  if (!list.empty()) {
    check_elements(list[static_cast<size_t>(self.rank)], "the root's own part of the list",
                   own.numel(), [&] { return as_many_as(own); });
  }
  Request request{.collective = collective,
                  .type = carrier_type(own),
                  .root = static_cast<int>(options.rootRank),
                  .uneven = true};
  (gathers ? request.input : request.output) = {own, Arrangement::kOwn, {}};
  if (!list.empty()) (gathers ? request.output : request.input) = {list, Arrangement::kPerRank, {}};
  return {.device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Request gather_request(at::TensorList outputs, const at::Tensor& input, RankInfo self) {
  check_count(outputs.size(), static_cast<size_t>(self.size), "output tensors, one for each rank,");
  for (const at::Tensor& output : outputs) check_same_type(output, input);
  check_elements(outputs[static_cast<size_t>(self.rank)], "this rank's output", input.numel(),
                 [&] { return as_many_as(input); });
  return {.collective = Collective::kAllGather,
          .type = carrier_type(outputs),
          .input = {input, Arrangement::kOwn, {}},
          .output = {outputs, Arrangement::kPerRank, {}}};
}

}  // namespace

Issue all_gather(const NestedTensors& outputs, const Tensors& inputs,
                 const c10d::AllgatherOptions& options, RankInfo self) {
  const at::Tensor& input = only(inputs);
  check_count(outputs.size(), 1, "lists of outputs");
  const auto device = check_tensors(inputs, outputs.front());
  // Outside the braces below: GCC 12 destroys twice if an initializer in them throws.
  Request request = gather_request(outputs.front(), input, self);
  return {.description = {"hccl-like:all_gather", c10d::OpType::ALLGATHER, inputs, outputs.front()},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue all_gather_single(const at::Tensor& output, const at::Tensor& input,
                        const c10d::AllgatherOptions& options, RankInfo self) {
  Issue issue = all_gather_coalesced(output, input, options, self);
  issue.description.title = "hccl-like:_all_gather_base";
  issue.description.type = c10d::OpType::_ALLGATHER_BASE;
  return issue;
}

Issue all_gather_lists(const NestedTensors& outputs, const Tensors& inputs,
                       const c10d::AllgatherOptions& options, RankInfo self) {
  check_count(outputs.size(), static_cast<size_t>(self.size),
              "lists of outputs, one for each rank,");
  Tensors all;
  for (const Tensors& list : outputs) {
    check_count(list.size(), inputs.size(), "outputs from each rank, one for each input,");
    all.insert(all.end(), list.begin(), list.end());
  }
  Issue issue{
      .device = check_tensors(inputs, all), .timeout = options.timeout, .async = options.asyncOp};
  issue.description = {"hccl-like:all_gather_coalesced", c10d::OpType::ALLGATHER_COALESCED, inputs,
                       issue.keep(std::move(all))};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_ranks;
    for (const Tensors& list : outputs) from_ranks.push_back(list[i]);
    issue.requests.push_back(gather_request(issue.keep(std::move(from_ranks)), inputs[i], self));
  }
  return issue;
}

Issue all_gather_coalesced(at::TensorList outputs, at::TensorList inputs,
                           const c10d::AllgatherOptions& options, RankInfo self) {
  check_count(outputs.size(), inputs.size(), "outputs, one for each input,");
  const auto device = check_tensors(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_type(outputs[i], inputs[i]);
    check_elements(outputs[i], "the output", inputs[i].numel() * self.size, [&] {
      return std::to_string(inputs[i].numel()) + " from each of the " + std::to_string(self.size) +
             " ranks";
    });
  }
  Request request{.collective = Collective::kAllGather,
                  .type = carrier_type(inputs),
                  .input = {inputs, Arrangement::kOwn, {}},
                  .output = {outputs, Arrangement::kCut, {}}};
  return {.description = {"hccl-like:all_gather_into_tensor_coalesced", c10d::OpType::COALESCED,
                          inputs, outputs},
          .device = device,
          .requests = {std::move(request)},
          .timeout = options.timeout,
          .async = options.asyncOp};
}

Issue gather(const NestedTensors& outputs, const Tensors& inputs,
             const c10d::GatherOptions& options, RankInfo self) {
  const Tensors& list = roots_list(outputs, options.rootRank, self, "output tensors");
  Issue issue = rooted(Collective::kGather, only(inputs), list, options, self);
  issue.description = {"hccl-like:gather", c10d::OpType::GATHER, inputs, list};
  return issue;
}

Issue scatter(const Tensors& outputs, const NestedTensors& inputs,
              const c10d::ScatterOptions& options, RankInfo self) {
  const Tensors& list = roots_list(inputs, options.rootRank, self, "input tensors");
  Issue issue = rooted(Collective::kScatter, only(outputs), list, options, self);
  issue.description = {"hccl-like:scatter", c10d::OpType::SCATTER, list, outputs};
  return issue;
}

}  // namespace hccl_like
