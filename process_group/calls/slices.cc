#include "process_group/calls/slices.h"

#include <algorithm>

#include "collectives/same_host/shape.h"

namespace hccl_like {
namespace {

// Slices begin at multiples of this, which splits no element of any type.
constexpr size_t kGranule = 256;

std::optional<Slices::Kind> kind_of(const Request& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return Slices::Kind::kAlike;
    case Collective::kAllToAll:
      return request.uneven ? Slices::Kind::kPairs : Slices::Kind::kAlike;
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv:
      return Slices::Kind::kPairs;
    default:
      return std::nullopt;
  }
}

size_t largest_chunk(const Side& side, size_t ranks) {
  size_t all = 0, chunk = 0, largest = 0;
  const size_t tensors_of_chunk = std::max<size_t>(1, side.tensors.size() / ranks);
  for (size_t i = 0; i < side.tensors.size(); ++i) {
    if (i % tensors_of_chunk == 0) chunk = 0;
    all += side.tensors[i].nbytes();
    chunk += side.tensors[i].nbytes();
    largest = std::max(largest, chunk);
  }
  switch (side.arrangement) {
    case Arrangement::kNone:
      return 0;
    case Arrangement::kWhole:
    case Arrangement::kOwn:
      return all;
    case Arrangement::kCut:
      return all / ranks;
    case Arrangement::kPerRank:
      return largest;
    case Arrangement::kSplits:
      return static_cast<size_t>(*std::ranges::max_element(side.splits)) *
             row_bytes(side.tensors.front());
  }
  return 0;
}

// True if the input or output of any rank has a chunk for every rank.
bool has_chunks(const Request& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kSend:
    case Collective::kRecv:
      return false;
    default:
      return true;
  }
}

constexpr size_t round_up(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

}  // namespace

bool of_one_type(const Request& request) {
  std::optional<c10::ScalarType> type;
  for (const Side* side : {&request.input, &request.output})
    for (const at::Tensor& tensor : side->tensors) {
      if (tensor.scalar_type() != type.value_or(tensor.scalar_type())) return false;
      type = tensor.scalar_type();
    }
  return true;
}

size_t row_bytes(const at::Tensor& tensor) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  return rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
}

size_t Slices::count_of(size_t bytes) const {
  return bytes < step ? 1 : std::max<size_t>(2, (bytes + step - 1) / step);
}

namespace {

std::optional<Slices> cut(const Request& request, int ranks, size_t most) {
  const auto kind = kind_of(request);
  if (!kind || !of_one_type(request)) return std::nullopt;
  const auto all = static_cast<size_t>(ranks);
  const size_t longest = most / (has_chunks(request) ? all : 1) / kGranule * kGranule;
  if (longest < kLeastStep) return std::nullopt;
  const size_t largest =
      std::max(largest_chunk(request.input, all), largest_chunk(request.output, all));
  Slices slices{.kind = *kind, .step = longest, .count = 0};
  if (slices.kind == Slices::Kind::kPairs) {
    slices.count = slices.count_of(largest);
  } else {
    // Equal slices: a short last slice would not hide the copies beside it.
    slices.count = std::max<size_t>(1, (largest + longest - 1) / longest);
    slices.step = round_up((largest + slices.count - 1) / slices.count);
    slices.count = slices.count == 1 ? 1 : (largest + slices.step - 1) / slices.step;
  }
  return slices;
}

}  // namespace

std::optional<Slices> slices_of(const Request& request, int ranks, size_t most) {
  const auto slices = cut(request, ranks, most);
  return slices && slices->count > 1 ? slices : std::nullopt;
}

std::optional<Slices> one_slice_of(const Request& request, int ranks, size_t most, size_t least) {
  const auto slices = cut(request, ranks, most);
  const auto all = static_cast<size_t>(ranks);
  const bool worth_it =
      std::max(largest_chunk(request.input, all), largest_chunk(request.output, all)) >= least;
  return slices && slices->count == 1 && worth_it ? slices : std::nullopt;
}

}  // namespace hccl_like
