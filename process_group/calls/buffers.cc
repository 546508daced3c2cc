#include "process_group/calls/buffers.h"

#include <span>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "process_group/calls/sharing.h"
#include "process_group/calls/tensors.h"

namespace hccl_like {
namespace {

bool overlap(std::span<const Region> some, std::span<const Region> others) {
  for (const Region& a : some) {
    for (const Region& b : others) {
      if (a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes)
        return true;
    }
  }
  return false;
}

std::vector<Region> cut_rows(const Side& side, Region whole) {
  const at::Tensor& tensor = side.tensors.front();
  const auto rows = static_cast<size_t>(tensor.dim() == 0 ? 1 : tensor.size(0));
  const size_t row_bytes = rows == 0 ? 0 : whole.bytes / rows;
  std::vector<Region> chunks;
  chunks.reserve(side.splits.size());
  for (const int64_t split : side.splits) {
    const size_t bytes = static_cast<size_t>(split) * row_bytes;
    chunks.push_back({whole.data, bytes});
    whole.data += bytes;
  }
  return chunks;
}

Layout layout_of(const Side& side, std::span<const Region> regions, size_t element_bytes, int rank,
                 int ranks) {
  const auto own = static_cast<size_t>(rank);
  const auto all = static_cast<size_t>(ranks);
  switch (side.arrangement) {
    case Arrangement::kNone:
      return {};
    case Arrangement::kWhole:
      return Layout::even(regions, 1, element_bytes);
    case Arrangement::kOwn:
      return Layout::single(regions, own, element_bytes);
    case Arrangement::kPerRank:
      return Layout::list({regions.begin(), regions.end()}, element_bytes);
    case Arrangement::kCut:
      return regions.size() == 1 ? Layout::even(regions.front(), all, element_bytes)
                                 : Layout::interleaved(regions, all, element_bytes);
    case Arrangement::kSplits:
      return Layout::list(cut_rows(side, regions.front()), element_bytes);
  }
  return {};
}

// True if every chunk that this rank reads and writes has one address: the only legal overlap.
bool runs_in_place(const Request& request, const Call& call, int rank) {
  if (request.collective == Collective::kAllToAll) return false;
  const auto chunk =
      request.input.arrangement == Arrangement::kWhole ? size_t{0} : static_cast<size_t>(rank);
  const Region in = call.input.contiguous(chunk, 0, call.input.bytes(chunk));
  const Region out = call.output.contiguous(chunk, 0, call.output.bytes(chunk));
  if (in.data != nullptr) return in.data == out.data && in.bytes == out.bytes;
  const at::TensorList tensors = request.input.tensors;
  if (tensors.size() != request.output.tensors.size()) return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_same(request.output.tensors[i])) return false;
  }
  return true;
}

// A side with at most one plain host tensor.
struct PlainSide {
  Region region;
  size_t count = 0;  // of regions: 0 or 1
  bool plain = true;

  std::span<const Region> regions() const { return {&region, count}; }
};
PlainSide plain_side(const Side& side) {
  if (side.arrangement == Arrangement::kNone) return {};
  if (side.tensors.size() != 1) return {.plain = false};
  const at::Tensor& tensor = side.tensors.front();
  if (!tensor.is_cpu() || !is_plain(tensor)) return {.plain = false};
  if (tensor.numel() == 0) return {.count = 1};
  return {.region = {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}, .count = 1};
}

}  // namespace

Call bare_call(const Request& request) {
  return {.collective = request.collective,
          .type = request.type,
          .op = request.op,
          .factor = request.factor,
          .root = request.root,
          .tag = request.tag,
          .site = request.site,
          .number = request.number,
          .uneven = request.uneven};
}

std::optional<Call> plain_call(const Request& request, int rank, int ranks) {
  const PlainSide input = plain_side(request.input);
  const PlainSide output = plain_side(request.output);
  if (!input.plain || !output.plain) return std::nullopt;
  const size_t element = size_of(request.type);
  std::optional<Call> call = bare_call(request);
  call->input = layout_of(request.input, input.regions(), element, rank, ranks);
  call->output = layout_of(request.output, output.regions(), element, rank, ranks);
  if (overlap(input.regions(), output.regions()) && !runs_in_place(request, *call, rank))
    return std::nullopt;
  return call;
}

void copy_all(const Copies& copies, bool non_blocking) {
  if (copies.empty()) return;
  const at::AutoDispatchBelowADInplaceOrView unseen;
  for (const auto& [to, from] : copies) to.copy_(from, non_blocking);
}

Call Buffers::call(const Request& request) {
  Call call = bare_call(request);
  const size_t element = size_of(request.type);
  const Regions inputs = reach_all(request.input, /*written=*/false);
  const Regions outputs = reach_all(request.output, /*written=*/true);
  for (const Region& region : outputs) {
    if (region.bytes > 0) written_.push_back({region, request.type == DataType::kBool});
  }
  call.input = layout_of(request.input, inputs, element, rank_, ranks_);
  call.output = layout_of(request.output, outputs, element, rank_, ranks_);
  const at::Tensor* input = memory_of(request.input);
  bool copied = false;
  if (overlap(inputs, outputs) && !runs_in_place(request, call, rank_)) {
    // Algorithms do not support this overlap.
    Regions copies;
    for (const at::Tensor& tensor : request.input.tensors) copies.push_back(private_copy(tensor));
    call.input = layout_of(request.input, copies, element, rank_, ranks_);
    if (input != nullptr) input = &temporaries_.back();
    copied = true;
  }
  if (!worth_sharing(communicator_, access_, call)) return call;
  share(access_, input, memory_of(request.output), call);
  if (inputs.size() > 1 && !copied) {
    std::vector<const at::Tensor*> memory;
    for (const at::Tensor& tensor : request.input.tensors) memory.push_back(memory_of(tensor));
    share_list(access_, memory, inputs, call);
  }
  return call;
}

const at::Tensor* Buffers::memory_of(const Side& side) const {
  const at::Tensor* const tensor = only_tensor(side);
  return tensor == nullptr ? nullptr : memory_of(*tensor);
}

// The tensor or its temporary; null if the tensor is empty.
const at::Tensor* Buffers::memory_of(const at::Tensor& tensor) const {
  for (const Known& known : known_) {
    if (known.tensor->is_same(tensor))
      return known.temporary.defined() ? &known.temporary : &tensor;
  }
  return nullptr;
}

Buffers::Regions Buffers::reach_all(const Side& side, bool written) {
  Regions regions;
  if (side.arrangement == Arrangement::kNone) return regions;
  regions.reserve(side.tensors.size());
  for (const at::Tensor& tensor : side.tensors) regions.push_back(reach(tensor, written));
  return regions;
}

Region Buffers::reach(const at::Tensor& tensor, bool written) {
  if (tensor.numel() == 0) return {};
  for (Known& known : known_) {
    if (!known.tensor->is_same(tensor)) continue;
    if (written && known.temporary.defined() && !known.copied_back) {
      copies_back_.emplace_back(tensor, known.temporary);
      known.copied_back = true;
    }
    return known.region;
  }
  if (access_.direct() && is_plain(tensor)) {
    const Region region = map(tensor);
    known_.push_back({&tensor, region, {}, false});
    return region;
  }
  const at::Tensor temporary = access_.temporary(tensor);
  if (written) {
    copies_back_.emplace_back(tensor, temporary);
  } else {
    copy_all({{temporary, tensor}}, in_stream_);
    temporaries_.push_back(temporary);
  }
  const Region region = map(temporary);
  known_.push_back({&tensor, region, temporary, written});
  return region;
}

Region Buffers::private_copy(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const at::Tensor temporary = access_.temporary(tensor);
  copy_all({{temporary, tensor}}, in_stream_);
  temporaries_.push_back(temporary);
  return map(temporary);
}

Region Buffers::map(const at::Tensor& tensor) {
  aliases_.push_back(tensor.is_cpu() ? Alias(static_cast<std::byte*>(tensor.data_ptr()))
                                     : access_.alias(tensor));
  return {aliases_.back().address(), tensor.nbytes()};
}

}  // namespace hccl_like
