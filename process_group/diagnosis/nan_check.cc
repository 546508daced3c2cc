#include "process_group/diagnosis/nan_check.h"

#include <ATen/ATen.h>

#include <string>

#include "process_group/diagnosis/profiling.h"

namespace hccl_like {
namespace {

// True if the call reads its input on this rank.
bool reads_input(const Request& request, int rank) {
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return request.root == rank;
    case Collective::kRecv:
    case Collective::kBarrier:
      return false;
    default:
      return true;
  }
}

// "[2, 0]"
std::string index_of(const at::Tensor& bad) {
  const at::Tensor first = bad.nonzero().select(0, 0).cpu();
  std::string text = "[";
  for (int64_t i = 0; i < first.numel(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(first[i].item<int64_t>());
  return text + "]";
}

}  // namespace

std::optional<Error> find_nan(const Issue& issue, int rank) {
  for (const Request& request : issue.requests) {
    if (!reads_input(request, rank)) continue;
    for (size_t i = 0; i < request.input.tensors.size(); ++i) {
      const at::Tensor& tensor = request.input.tensors[i];
      const bool may_have = tensor.is_floating_point() || tensor.is_complex();
      if (!may_have || tensor.numel() == 0) continue;
      const bool tiny = tensor.element_size() == 1;  // torch lacks isnan for 1-byte types
      const at::Tensor bad = at::isnan(tiny ? tensor.to(at::kFloat) : tensor);
      if (!bad.any().item<bool>()) continue;
      const std::string which =
          request.input.tensors.size() == 1 ? "" : " of tensor " + std::to_string(i);
      std::string message = "the input of rank " + std::to_string(rank) + " to " +
                            operation_name(issue) + " #" + std::to_string(issue.number.number()) +
                            " has a NaN, the first at index " + index_of(bad) + which;
      return Error{.code = ErrorCode::kNan, .message = std::move(message), .peer = rank};
    }
  }
  return std::nullopt;
}

}  // namespace hccl_like
