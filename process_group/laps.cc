#include "process_group/laps.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>

#include "collectives/direct/shape.h"
#include "process_group/copy_queue.h"
#include "process_group/plugin_streams.h"
#include "transport/rendezvous.h"

namespace hccl_like {
namespace {

// Laps begin at multiples of this, so that no element of any type is cut.
constexpr size_t kGranule = 256;
// Smaller parts of chunks cost more in copies than they win.
constexpr size_t kLeastStep = 16 << 10;

std::optional<Laps::Kind> kind_of(const Request& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return Laps::Kind::kAlike;
    case Collective::kAllToAll:
      return request.uneven ? Laps::Kind::kPairs : Laps::Kind::kAlike;
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv:
      return Laps::Kind::kPairs;
    default:
      return std::nullopt;
  }
}

// Of a tensor that is cut by rows.
size_t row_bytes(const at::Tensor& tensor) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  return rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
}

size_t largest_chunk(const Side& side, size_t ranks) {
  size_t all = 0, largest = 0;
  for (const at::Tensor& tensor : side.tensors) {
    all += tensor.nbytes();
    largest = std::max(largest, tensor.nbytes());
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

bool of_one_type(const Request& request) {
  std::optional<c10::ScalarType> type;
  for (const Side* side : {&request.input, &request.output})
    for (const at::Tensor& tensor : side->tensors) {
      if (tensor.scalar_type() != type.value_or(tensor.scalar_type())) return false;
      type = tensor.scalar_type();
    }
  return true;
}

// Whether a side of it has a chunk for every rank, on any rank.
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

Part within(Part part, size_t bytes) {
  return {std::min(part.begin, bytes), std::min(part.end, bytes)};
}

// Not by an operator: a view needs nothing of the device, and must not be seen by whoever listens to operators.
at::Tensor view_of(const at::Tensor& tensor, c10::Storage storage, size_t begin, size_t bytes) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      tensor.dtype());
  auto* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset() +
                           static_cast<int64_t>(begin / tensor.itemsize()));
  impl->set_sizes_contiguous({static_cast<int64_t>(bytes / tensor.itemsize())});
  return view;
}

at::Tensor unkept(const at::Tensor& tensor) {
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  return view_of(tensor,
                 c10::make_intrusive<c10::StorageImpl>(
                     c10::StorageImpl::use_byte_size_t(), storage->nbytes(),
                     c10::DataPtr(storage->mutable_data(), storage->device()),
                     /*allocator=*/nullptr, /*resizable=*/false),
                 0, tensor.nbytes());
}

}  // namespace

size_t Laps::count_of(size_t bytes) const {
  return bytes < step ? 1 : std::max<size_t>(2, (bytes + step - 1) / step);
}

namespace {

std::optional<Laps> cut(const Request& request, int ranks, size_t most) {
  const auto kind = kind_of(request);
  if (!kind || !of_one_type(request)) return std::nullopt;
  const auto all = static_cast<size_t>(ranks);
  const size_t longest = most / (has_chunks(request) ? all : 1) / kGranule * kGranule;
  if (longest < kLeastStep) return std::nullopt;
  const size_t largest =
      std::max(largest_chunk(request.input, all), largest_chunk(request.output, all));
  Laps laps{.kind = *kind, .step = longest, .count = 0};
  if (laps.kind == Laps::Kind::kPairs) {
    laps.count = laps.count_of(largest);
  } else {
    // Alike, so that the last is not too short to hide what is copied beside it.
    laps.count = std::max<size_t>(1, (largest + longest - 1) / longest);
    laps.step = round_up((largest + laps.count - 1) / laps.count);
    laps.count = laps.count == 1 ? 1 : (largest + laps.step - 1) / laps.step;
  }
  return laps;
}

}  // namespace

std::optional<Laps> laps_of(const Request& request, int ranks, size_t most) {
  const auto laps = cut(request, ranks, most);
  return laps && laps->count > 1 ? laps : std::nullopt;
}

std::optional<Laps> one_lap_of(const Request& request, int ranks, size_t most) {
  if (reduces(request.collective)) return std::nullopt;
  const auto laps = cut(request, ranks, most);
  const auto all = static_cast<size_t>(ranks);
  const bool worth_it = std::max(largest_chunk(request.input, all),
                                 largest_chunk(request.output, all)) >= kLeastRendezvous;
  return laps && laps->count == 1 && worth_it ? laps : std::nullopt;
}

void DeviceSide::add(size_t number, std::vector<Extent> extents) {
  Chunk chunk{number, std::move(extents), 0};
  for (const Extent& extent : chunk.extents) chunk.bytes += extent.bytes;
  chunks_.push_back(std::move(chunk));
}

DeviceSide::DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank,
                       int ranks) {
  const auto all = static_cast<size_t>(ranks);
  std::vector<Extent> extents;
  switch (side.arrangement) {
    case Arrangement::kWhole:
    case Arrangement::kOwn:
      single_ = side.arrangement == Arrangement::kOwn;
      for_ranks_ = false;
      for (const at::Tensor& tensor : tensors) extents.push_back({tensor, 0, tensor.nbytes()});
      add(single_ ? static_cast<size_t>(rank) : 0, std::move(extents));
      return;
    case Arrangement::kPerRank:
      for (size_t i = 0; i < tensors.size(); ++i) add(i, {{tensors[i], 0, tensors[i].nbytes()}});
      return;
    case Arrangement::kCut:
      for (size_t i = 0; i < all; ++i) {
        extents.clear();
        for (const at::Tensor& tensor : tensors) {
          const size_t share = tensor.nbytes() / all;
          extents.push_back({tensor, i * share, share});
        }
        add(i, extents);
      }
      return;
    case Arrangement::kSplits: {
      size_t begin = 0;
      for (size_t i = 0; i < all; ++i) {
        const size_t bytes = static_cast<size_t>(side.splits[i]) * row_bytes(tensors.front());
        add(i, {{tensors.front(), begin, bytes}});
        begin += bytes;
      }
      return;
    }
    case Arrangement::kNone:
      return;
  }
}

void DeviceSide::let_go() {
  for (Chunk& chunk : chunks_)
    for (Extent& extent : chunk.extents) extent.tensor = unkept(extent.tensor);
}

size_t DeviceSide::bytes(Part part) const {
  size_t bytes = 0;
  for (const Chunk& chunk : chunks_) {
    const Part own = within(part, chunk.bytes);
    bytes += own.end - own.begin;
  }
  return bytes;
}

std::vector<DeviceSide::Message> DeviceSide::messages(const Laps& laps, size_t lap,
                                                      int root) const {
  std::vector<Message> messages;
  size_t begin = 0;
  for (const Chunk& chunk : chunks_) {
    const Part own = within(laps.part(lap), chunk.bytes);
    const size_t bytes = own.end - own.begin;
    if (laps.count_of(chunk.bytes) > lap)
      messages.push_back({for_ranks_ ? static_cast<int>(chunk.number) : root, chunk.number, begin,
                          bytes, chunk.bytes});
    begin += bytes;
  }
  return messages;
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
        visitor(on_host, view_of(extent.tensor, extent.tensor.storage(),
                                 extent.begin + begin - start, end - begin));
        at += end - begin;
      }
      start += extent.bytes;
    }
  }
}

void DeviceSide::to_host(const CopyQueue& copies, const at::Tensor& host, Part part) const {
  visit(host, part, [&](const at::Tensor& on_host, const at::Tensor& on_device) {
    copies.to_host(on_host, on_device);
  });
}

void DeviceSide::to_device(const CopyQueue& copies, const at::Tensor& host, Part part) const {
  visit(host, part, [&](const at::Tensor& on_host, const at::Tensor& on_device) {
    copies.to_device(on_host, on_device);
  });
}

std::optional<std::vector<Region>> DeviceSide::places(Exports& exports) const {
  std::vector<Region> places;
  for (const Chunk& chunk : chunks_) {
    places.emplace_back();
    for (const Extent& extent : chunk.extents) {
      if (extent.bytes == 0) continue;
      if (places.back().data != nullptr) {
        exports.why_not = "several tensors make one message";
        return std::nullopt;
      }
      hcd_ref ref = ref_of(extent.tensor);
      ref.offset += extent.begin;
      auto range = exports.memories.range(exports.device, exports.index, ref, extent.bytes);
      if (!range.ok()) {
        exports.why_not = range.error().message;
        return std::nullopt;
      }
      places.back() = {range.value().data, extent.bytes};
      exports.held.push_back(range.value().memory);
    }
  }
  return places;
}

const DeviceSide::Chunk& DeviceSide::chunk(size_t number) const {
  return *std::ranges::find_if(chunks_, [&](const Chunk& one) { return one.number == number; });
}

Region DeviceSide::place(const std::vector<Region>& places, size_t number, Part part) const {
  const Region& whole = places[static_cast<size_t>(&chunk(number) - chunks_.data())];
  const Part own = within(part, whole.bytes);
  return {whole.data + own.begin, own.end - own.begin};
}

Layout DeviceSide::layout(const std::vector<Region>& places, Part part,
                          size_t element_bytes) const {
  if (chunks_.empty()) return {};
  std::vector<Region> regions;
  for (const Chunk& chunk : chunks_) regions.push_back(place(places, chunk.number, part));
  if (single_) return Layout::single(regions, chunks_.front().number, element_bytes);
  return regions.size() == 1 ? Layout::even(regions.front(), 1, element_bytes)
                             : Layout::list(std::move(regions), element_bytes);
}

void DeviceSide::to_device(const CopyQueue& copies, const DeviceSide& other, size_t number,
                           Part part) const {
  const Extent& from = chunk(number).extents.front();
  const Extent& to = other.chunk(number).extents.front();
  const Part own = within(part, from.bytes);
  if (own.begin == own.end) return;
  copies.within(
      view_of(to.tensor, to.tensor.storage(), to.begin + own.begin, own.end - own.begin),
      view_of(from.tensor, from.tensor.storage(), from.begin + own.begin, own.end - own.begin));
}

Layout DeviceSide::layout(Region host, Part part, size_t element_bytes) const {
  if (chunks_.empty()) return {};
  if (single_)
    return Layout::single(std::span<const Region>(&host, 1), chunks_.front().number, element_bytes);
  std::vector<Region> regions;
  bool even = true;
  for (const Chunk& chunk : chunks_) {
    const Part own = within(part, chunk.bytes);
    regions.push_back({host.data, own.end - own.begin});
    host.data += regions.back().bytes;
    even = even && regions.back().bytes == regions.front().bytes;
  }
  host.data = regions.front().data;
  return even ? Layout::even(host, regions.size(), element_bytes)
              : Layout::list(std::move(regions), element_bytes);
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
