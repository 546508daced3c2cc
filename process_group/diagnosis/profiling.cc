#include "process_group/diagnosis/profiling.h"

#include <array>
#include <numeric>
#include <string_view>

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

namespace hccl_like {
namespace {

struct ProfileNames {
  std::string_view ours;
  std::string_view theirs;
};

// Call names of ProcessGroupNCCL, which trace tools expect.
constexpr std::array kProfileNames{
    ProfileNames{"all_reduce", "allreduce"},
    ProfileNames{"all_reduce_coalesced", "allreduce_coalesced"},
    ProfileNames{"_all_gather_base", "_allgather_base"},
    ProfileNames{"all_gather_coalesced", "allgather_coalesced"},
    ProfileNames{"all_gather_into_tensor_coalesced", "allgather_into_tensor_coalesced"},
    ProfileNames{"recvAnySource", "recv"},
};

std::string collective_name(const Issue& issue) {
  const std::string name = operation_name(issue);
  const Request* request = issue.requests.empty() ? nullptr : &issue.requests.front();
  if (issue.description.type == c10d::OpType::ALLTOALL_BASE && request && request->uneven) {
    return "all_to_allv";
  }
  for (const ProfileNames& names : kProfileNames) {
    if (names.ours == name) return std::string(names.theirs);
  }
  return name;
}

int64_t elements(at::TensorList tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), int64_t{0},
      [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

// Computed from the own part: only the root of a scatter or gather holds all parts.
int64_t elements_in(const Issue& issue, int size) {
  const bool scatters = issue.description.type == c10d::OpType::SCATTER;
  return scatters ? elements(issue.description.outputs) * size : elements(issue.description.inputs);
}

int64_t elements_out(const Issue& issue, int size) {
  const bool gathers = issue.description.type == c10d::OpType::GATHER;
  return gathers ? elements(issue.description.inputs) * size : elements(issue.description.outputs);
}

at::ScalarType type_of(const Description& description) {
  if (!description.inputs.empty()) return description.inputs.front().scalar_type();
  if (!description.outputs.empty()) return description.outputs.front().scalar_type();
  return at::kByte;
}

std::vector<int64_t> splits(const Issue& issue, const Side Request::*side) {
  if (issue.requests.size() != 1) return {};
  const Request& request = issue.requests.front();
  if (request.collective != Collective::kAllToAll) return {};
  const Side& one = request.*side;
  if (one.arrangement != Arrangement::kPerRank) return one.splits;
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : one.tensors) sizes.push_back(tensor.numel());
  return sizes;
}

std::tuple<int64_t, bool> sequence(const CallNumber& number) {
  return {static_cast<int64_t>(number.is_message ? number.message : number.collective),
          number.is_message};
}

std::tuple<std::string, std::string> name_of(const GroupView& group) {
  return {group.name, group.description};
}

}  // namespace

bool profiled() { return at::hasCallbacks(); }

std::string operation_name(const Issue& issue) {
  const std::string_view title = issue.description.title;
  return std::string(title.substr(title.find(':') + 1));
}

bool is_message(const Issue& issue) {
  return !issue.requests.empty() && (issue.requests.front().collective == Collective::kSend ||
                                     issue.requests.front().collective == Collective::kRecv);
}

int root_of(const Issue& issue, int otherwise) {
  if (issue.requests.empty()) return otherwise;
  switch (issue.requests.front().collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv:
      return issue.requests.front().root;
    default:
      return otherwise;
  }
}

// Before torch 2.12 records have no async flag.
#ifdef RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP
#define RECORD_CALL RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP
#else
#define RECORD_CALL(...) RECORD_CALL_WITHOUT_LAST(__VA_ARGS__)
#define RECORD_CALL_WITHOUT_LAST(seq, name, inputs, outputs, root, call, in, out, type, in_splits, \
                                 out_splits, start, stride, size, async)                           \
  RECORD_PARAM_COMMS_DATA(seq, name, inputs, outputs, root, call, in, out, type, in_splits,        \
                          out_splits, start, stride, size)
#endif

void record_call(const GroupView& group, const Issue& issue, c10::function_ref<void()> make_call) {
  RECORD_CALL(sequence(issue.number), name_of(group), issue.description.inputs.vec(),
              issue.description.outputs.vec(), root_of(issue, group.rank), collective_name(issue),
              elements_in(issue, group.size), elements_out(issue, group.size),
              type_of(issue.description), splits(issue, &Request::input),
              splits(issue, &Request::output), group.start, group.stride, group.size, issue.async);
  make_call();
}

void record_wait(const GroupView& group, const CallNumber& number, c10::function_ref<void()> wait) {
  RECORD_PARAM_COMMS(sequence(number), name_of(group), group.rank, std::string("wait"), 0, 0,
                     at::kByte, std::vector<int64_t>(), std::vector<int64_t>(), -1, -1, group.size);
  wait();
}

}  // namespace hccl_like
