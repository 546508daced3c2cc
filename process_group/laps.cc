#include "process_group/laps.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>

namespace hccl_like {
namespace {

// Laps begin at multiples of this, so that no element of any type is cut.
constexpr size_t kGranule = 256;
// Smaller parts of chunks cost more in copies than they win.
constexpr size_t kLeastStep = 16 << 10;

bool has_laps(const Request& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return !request.uneven;
    default:
      return false;
  }
}

// The bytes of each of the chunks, if all have the same.
std::optional<size_t> chunk_bytes_of(const Side& side, size_t ranks) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : side.tensors) bytes += tensor.nbytes();
  switch (side.arrangement) {
    case Arrangement::kWhole:
    case Arrangement::kOwn:
      return bytes;
    case Arrangement::kCut:
      return bytes / ranks;
    case Arrangement::kPerRank:
      for (const at::Tensor& tensor : side.tensors)
        if (tensor.nbytes() * ranks != bytes) return std::nullopt;
      return bytes / ranks;
    default:
      return std::nullopt;
  }
}

// Not by an operator: a view needs nothing of the device, and must not be seen by whoever listens to operators.
at::Tensor view_of(const at::Tensor& tensor, size_t begin, size_t bytes, c10::DispatchKey key) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW,
                                                       c10::Storage(tensor.storage()),
                                                       c10::DispatchKeySet(key), tensor.dtype());
  auto* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset() +
                           static_cast<int64_t>(begin / tensor.itemsize()));
  impl->set_sizes_contiguous({static_cast<int64_t>(bytes / tensor.itemsize())});
  return view;
}

}  // namespace

std::optional<Laps> laps_of(const Request& request, int ranks, size_t most) {
  if (!has_laps(request)) return std::nullopt;
  const auto all = static_cast<size_t>(ranks);
  Laps laps;
  std::optional<c10::ScalarType> type;
  for (const Side* side : {&request.input, &request.output}) {
    if (side->arrangement == Arrangement::kNone) continue;
    const auto bytes = chunk_bytes_of(*side, all);
    if (!bytes) return std::nullopt;
    laps.chunk_bytes = *bytes;
    if (side->arrangement == Arrangement::kCut || side->arrangement == Arrangement::kPerRank)
      laps.chunks = all;
    for (const at::Tensor& tensor : side->tensors) {
      if (tensor.scalar_type() != type.value_or(tensor.scalar_type())) return std::nullopt;
      type = tensor.scalar_type();
    }
  }
  const size_t longest = most / laps.chunks / kGranule * kGranule;
  if (longest < kLeastStep || laps.chunk_bytes <= longest) return std::nullopt;
  laps.count = (laps.chunk_bytes + longest - 1) / longest;
  laps.step = (laps.chunk_bytes + laps.count - 1) / laps.count;
  laps.step = (laps.step + kGranule - 1) / kGranule * kGranule;
  laps.count = (laps.chunk_bytes + laps.step - 1) / laps.step;
  return laps;
}

DeviceSide::DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank,
                       int ranks) {
  const auto all = static_cast<size_t>(ranks);
  switch (side.arrangement) {
    case Arrangement::kWhole:
    case Arrangement::kOwn:
      single_ = side.arrangement == Arrangement::kOwn;
      chunks_.push_back({.number = single_ ? static_cast<size_t>(rank) : 0});
      for (const at::Tensor& tensor : tensors)
        chunks_.back().extents.push_back({tensor, 0, tensor.nbytes()});
      return;
    case Arrangement::kPerRank:
      for (size_t i = 0; i < tensors.size(); ++i)
        chunks_.push_back({i, {{tensors[i], 0, tensors[i].nbytes()}}});
      return;
    case Arrangement::kCut:
      for (size_t i = 0; i < all; ++i) {
        chunks_.push_back({.number = i});
        for (const at::Tensor& tensor : tensors) {
          const size_t share = tensor.nbytes() / all;
          chunks_.back().extents.push_back({tensor, i * share, share});
        }
      }
      return;
    default:
      return;
  }
}

template <class Visitor>
void DeviceSide::visit(const at::Tensor& host, Part part, Visitor&& visitor) const {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  size_t at = 0;  // in `host`
  for (const Chunk& chunk : chunks_) {
    size_t start = 0;  // of the extent, in the chunk
    for (const Extent& extent : chunk.extents) {
      const size_t begin = std::max(part.begin, start);
      const size_t end = std::min(part.end, start + extent.bytes);
      if (begin < end) {
        const at::Tensor on_host =
            host.narrow(0, static_cast<int64_t>(at), static_cast<int64_t>(end - begin))
                .view(extent.tensor.scalar_type());
        visitor(on_host, view_of(extent.tensor, extent.begin + begin - start, end - begin,
                                 c10::DispatchKey::PrivateUse1));
        at += end - begin;
      }
      start += extent.bytes;
    }
  }
}

void DeviceSide::to_host(const at::Tensor& host, Part part) const {
  visit(host, part,
        [](const at::Tensor& on_host, const at::Tensor& on_device) { on_host.copy_(on_device); });
}

void DeviceSide::to_device(const at::Tensor& host, Part part) const {
  visit(host, part,
        [](const at::Tensor& on_host, const at::Tensor& on_device) { on_device.copy_(on_host); });
}

Layout DeviceSide::layout(Region host, size_t element_bytes) const {
  if (chunks_.empty()) return {};
  if (single_)
    return Layout::single(std::span<const Region>(&host, 1), chunks_.front().number, element_bytes);
  return Layout::even(host, chunks_.size(), element_bytes);
}

bool DeviceSide::may_be_overwritten_by(const DeviceSide& other) const {
  for (const Chunk& chunk : chunks_) {
    size_t at = 0;
    for (const Extent& extent : chunk.extents) {
      const size_t begin = extent.tensor.storage_offset() * extent.tensor.itemsize() + extent.begin;
      for (const Chunk& others_chunk : other.chunks_) {
        size_t others_at = 0;
        for (const Extent& others : others_chunk.extents) {
          const size_t others_begin =
              others.tensor.storage_offset() * others.tensor.itemsize() + others.begin;
          const bool shares = extent.tensor.storage().is_alias_of(others.tensor.storage()) &&
                              begin < others_begin + others.bytes &&
                              others_begin < begin + extent.bytes;
          const bool same_place =
              chunk.number == others_chunk.number && begin - at == others_begin - others_at;
          if (shares && !same_place) return false;
          others_at += others.bytes;
        }
      }
      at += extent.bytes;
    }
  }
  return true;
}

}  // namespace hccl_like
