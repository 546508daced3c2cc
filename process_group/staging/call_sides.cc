#include "process_group/staging/call_sides.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "process_group/calls/tensors.h"

namespace hccl_like {
namespace {

constexpr Part kWholeCall{0, std::numeric_limits<size_t>::max()};

}  // namespace

std::vector<at::Tensor> CallSides::set(const Request& request, int rank, int ranks) {
  auto inputs = plain(request.input, /*written=*/false);
  const auto outputs = plain(request.output, /*written=*/true);
  input = DeviceSide(request.input, inputs, rank, ranks);
  output = DeviceSide(request.output, outputs, rank, ranks);
  // An all-to-all sends and receives different data.
  in_place = request.collective != Collective::kAllToAll && !inputs.empty() &&
             inputs.size() == outputs.size() &&
             std::equal(inputs.begin(), inputs.end(), outputs.begin(),
                        [](const auto& a, const auto& b) { return a.is_same(b); }) &&
             request.input.arrangement == request.output.arrangement;
  if (request.collective == Collective::kBroadcast) {
    reads = request.root == rank;
    writes = !reads;
  }
  return inputs;
}

std::vector<at::Tensor> CallSides::plain(const Side& side, bool written) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : side.tensors) {
    if (is_plain(tensor)) {
      tensors.push_back(tensor);
      continue;
    }
    const at::AutoDispatchBelowADInplaceOrView unseen;
    auto known = std::find_if(fresh.begin(), fresh.end(),
                              [&](const auto& one) { return one.first.is_same(tensor); });
    if (known == fresh.end()) {
      fresh.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options()));
      known = std::prev(fresh.end());
      if (!written) known->second.copy_(tensor);
    }
    if (written) copies_back.push_back(*known);
    tensors.push_back(known->second);
  }
  return tensors;
}

std::vector<at::Tensor> CallSides::pack(c10::Device device, bool exchanges) {
  std::vector<at::Tensor> taken;
  const auto packed = [&](const DeviceSide& side, bool fill, bool copy_back) {
    taken.push_back(at::empty({static_cast<int64_t>(side.bytes(kWholeCall))},
                              at::TensorOptions().dtype(at::kByte).device(device)));
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (const auto& [piece, own] : side.pieces_in(taken.back())) {
      if (fill) piece.copy_(own);
      if (copy_back) copies_back.emplace_back(own, piece);
    }
    return taken.back();
  };
  const auto in = input.range(), out = output.range();
  const bool one_range = in && out, overlap = one_range && in->overlaps(*out);
  if (in_place && !one_range) {
    const at::Tensor memory = packed(input, reads, writes);
    input = input.packed_in(memory);
    output = output.packed_in(memory);
  } else if (!in_place) {
    if (!in || (exchanges ? overlap : !input.may_be_overwritten_by(output)))
      input = input.packed_in(packed(input, reads, false));
    if (!out) output = output.packed_in(packed(output, false, writes));
  }
  return taken;
}

Layout CallSides::sizes(const DeviceSide& side, DataType type) {
  constexpr uintptr_t kAnyAddress = 64;
  return side.layout({reinterpret_cast<std::byte*>(kAnyAddress), side.bytes(kWholeCall)},
                     kWholeCall, size_of(type));
}

}  // namespace hccl_like
