#include "process_group/diagnosis/flight_recorder_shapes.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace hccl_like {
namespace {

struct ShapeNames {
  std::string_view ours;
  std::string_view theirs;
};
constexpr std::array kShapeNames{
    ShapeNames{"all_reduce_coalesced", "allreduce_coalesced"},
    ShapeNames{"all_gather_coalesced", "all_gather_into_tensor_coalesced"},
    ShapeNames{"recvAnySource", "recv"},
};

void add(FlightEntry::Shapes& shapes, c10::IntArrayRef sizes, c10::ScalarType type) {
  shapes.sizes.append(sizes.begin(), sizes.end());
  shapes.dimensions.push_back(static_cast<uint8_t>(sizes.size()));
  shapes.types.push_back(type);
}

void add_all(FlightEntry::Shapes& shapes, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) add(shapes, tensor.sizes(), tensor.scalar_type());
}

// As one tensor with a leading dimension of ranks.
void add_stacked(FlightEntry::Shapes& shapes, at::TensorList parts, int ranks) {
  for (const at::Tensor& part : parts) {
    shapes.sizes.push_back(ranks);
    shapes.sizes.append(part.sizes().begin(), part.sizes().end());
    shapes.dimensions.push_back(static_cast<uint8_t>(part.dim() + 1));
    shapes.types.push_back(part.scalar_type());
  }
}

// As one flat tensor.
void add_joined(FlightEntry::Shapes& shapes, at::TensorList tensors) {
  const int64_t elements =
      std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                      [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
  if (!tensors.empty()) add(shapes, {elements}, tensors.front().scalar_type());
}

void clear(FlightEntry::Shapes& shapes) {
  shapes.sizes.clear();
  shapes.dimensions.clear();
  shapes.types.clear();
}

// True if every rank's tensors have the sizes of `own`.
bool even(at::TensorList lists, at::TensorList own) {
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].numel() != own[i % own.size()].numel()) return false;
  }
  return true;
}

// Of calls in which the ranks' parts are told apart.
[[gnu::noinline]] void describe_parts(const Issue& issue, int ranks, FlightEntry& entry) {
  const auto& [title, type, inputs, outputs] = issue.description;
  if (type == c10d::OpType::ALLTOALL || type == c10d::OpType::ALLTOALL_BASE) {
    add_joined(entry.inputs, inputs);
    if (!entry.in_place) add_joined(entry.outputs, outputs);
    return;
  }
  const bool gathers = type != c10d::OpType::REDUCE_SCATTER;
  const at::TensorList whole = gathers ? outputs : inputs, own = gathers ? inputs : outputs;
  entry.uneven = !even(whole, own);
  if (entry.uneven) {
    add_all(entry.inputs, whole);
    add_all(entry.outputs, whole);
  } else if (gathers) {
    add_all(entry.inputs, own);
    add_stacked(entry.outputs, own, ranks);
  } else {
    add_stacked(entry.inputs, own, ranks);
    add_all(entry.outputs, own);
  }
}

}  // namespace

[[gnu::hot, gnu::flatten]] void describe(const Issue& issue, int ranks, FlightEntry& entry) {
  const auto& [title, type, inputs, outputs] = issue.description;
  entry.title = title;
  entry.in_place = inputs.data() == outputs.data() && inputs.size() == outputs.size();
  entry.uneven = false;
  clear(entry.inputs);
  if (!entry.in_place) clear(entry.outputs);
  switch (type) {
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::ALLGATHER_COALESCED:
    case c10d::OpType::REDUCE_SCATTER:
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE:
      return describe_parts(issue, ranks, entry);
    default:
      add_all(entry.inputs, inputs);
      if (!entry.in_place) add_all(entry.outputs, outputs);
  }
}

std::string FlightEntry::name() const {
  const std::string_view whole = title;
  const std::string_view ours = whole.substr(whole.find(':') + 1);
  if (uneven) return ours.starts_with("all_gather") ? "all_gather_v" : "reduce_scatter_v";
  const auto named = std::ranges::find(kShapeNames, ours, &ShapeNames::ours);
  return std::string(named == kShapeNames.end() ? ours : named->theirs);
}

}  // namespace hccl_like
