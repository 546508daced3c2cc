#include "process_group/staging/device_side.h"

#include <algorithm>
#include <limits>
#include <span>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>

#include "process_group/device/plugin_streams.h"
#include "process_group/staging/copy_queue.h"

namespace hccl_like {
namespace {

constexpr Part kAll{0, std::numeric_limits<size_t>::max()};

Part within(Part part, size_t bytes) {
  return {std::min(part.begin, bytes), std::min(part.end, bytes)};
}

// Also valid after let_go().
bool same_storage(const at::Tensor& one, const at::Tensor& other) {
  return one.storage().data() == other.storage().data();
}

// Byte offset in the storage.
size_t place_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
}

// Bypasses operators: operator hooks must not see the view.
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

at::Tensor part_of(const at::Tensor& tensor, size_t begin, size_t bytes) {
  return view_of(tensor, tensor.storage(), begin, bytes);
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
      for (size_t i = 0; i < all; ++i) {
        extents.clear();
        const size_t count = tensors.size() / all;
        for (const at::Tensor& tensor : std::span(tensors).subspan(i * count, count))
          extents.push_back({tensor, 0, tensor.nbytes()});
        add(i, extents);
      }
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

std::vector<DeviceSide::Message> DeviceSide::messages(const Slices& slices, size_t slice,
                                                      int root) const {
  std::vector<Message> messages;
  size_t begin = 0;
  for (const Chunk& chunk : chunks_) {
    const Part own = within(slices.part(slice), chunk.bytes);
    const size_t bytes = own.end - own.begin;
    if (slices.count_of(chunk.bytes) > slice)
      messages.push_back({for_ranks_ ? static_cast<int>(chunk.number) : root, chunk.number, begin,
                          bytes, chunk.bytes});
    begin += bytes;
  }
  return messages;
}

template <class Visitor>
void DeviceSide::visit(Part part, Visitor&& visit, std::optional<size_t> but) const {
  struct {
    const at::Tensor* tensor = nullptr;
    size_t begin = 0, bytes = 0;  // may extend into tensors directly behind this one
    size_t at = 0;
  } run;  // pending piece
  size_t at = 0;
  const auto tell = [&] {
    if (run.tensor != nullptr) visit(*run.tensor, run.begin, run.begin + run.bytes, run.at);
  };
  for (const Chunk& chunk : chunks_) {
    if (chunk.number == but) {
      const Part left_out = within(part, chunk.bytes);
      at += left_out.end - left_out.begin;
      tell();
      run = {};
      continue;
    }
    size_t start = 0;  // offset of the extent in the chunk
    for (const Extent& extent : chunk.extents) {
      const size_t begin = std::max(part.begin, start);
      const size_t end = std::min(part.end, start + extent.bytes);
      if (begin < end) {
        const size_t in_tensor = extent.begin + begin - start;
        const bool goes_on =
            run.tensor != nullptr && same_storage(*run.tensor, extent.tensor) &&
            place_of(*run.tensor) + run.begin + run.bytes == place_of(extent.tensor) + in_tensor;
        if (!goes_on) {
          tell();
          run = {&extent.tensor, in_tensor, 0, at};
        }
        run.bytes += end - begin;
        at += end - begin;
      }
      start += extent.bytes;
    }
  }
  tell();
}

template <class Copy>
void DeviceSide::copy(const at::Tensor& host, Part part, Copy&& copy,
                      std::optional<size_t> but) const {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const auto see = [&](const at::Tensor& tensor, size_t begin, size_t end, size_t at) {
    const auto bytes = static_cast<int64_t>(end - begin);
    copy(host.narrow(0, static_cast<int64_t>(at), bytes).view(tensor.scalar_type()),
         part_of(tensor, begin, end - begin));
  };
  visit(part, see, but);
}

void DeviceSide::to_host(const CopyQueue& copies, const at::Tensor& host, Part part,
                         std::optional<size_t> but) const {
  const auto to = [&](const at::Tensor& on_host, const at::Tensor& on_device) {
    copies.to_host(on_host, on_device);
  };
  copy(host, part, to, but);
}

void DeviceSide::to_device(const CopyQueue& copies, const at::Tensor& host, Part part,
                           std::optional<size_t> but) const {
  const auto to = [&](const at::Tensor& on_host, const at::Tensor& on_device) {
    copies.to_device(on_host, on_device);
  };
  copy(host, part, to, but);
}

size_t DeviceSide::bytes_touched(Part part) const {
  size_t bytes = 0;
  visit(part, [&](const at::Tensor& tensor, size_t, size_t, size_t) {
    bytes += tensor.storage().nbytes();
  });
  return bytes;
}

std::optional<DeviceRange> DeviceSide::range() const {
  std::optional<DeviceRange> range = DeviceRange{};
  visit(kAll, [&](const at::Tensor& tensor, size_t begin, size_t end, size_t at) {
    if (at > 0) {
      range.reset();
    } else {
      range = DeviceRange{ref_of(tensor), end - begin};
      range->begin.offset += begin;
    }
  });
  return range;
}

DeviceSide DeviceSide::packed_in(const at::Tensor& memory) const {
  DeviceSide packed;
  packed.single_ = single_;
  packed.for_ranks_ = for_ranks_;
  size_t begin = 0;
  for (const Chunk& chunk : chunks_) {
    packed.add(chunk.number, {{memory, begin, chunk.bytes}});
    begin += chunk.bytes;
  }
  return packed;
}

std::vector<std::pair<at::Tensor, at::Tensor>> DeviceSide::pieces_in(
    const at::Tensor& memory) const {
  std::vector<std::pair<at::Tensor, at::Tensor>> pieces;
  copy(memory, kAll,
       [&](const at::Tensor& packed, const at::Tensor& own) { pieces.emplace_back(packed, own); });
  return pieces;
}

std::vector<Region> DeviceSide::places(Region host) const {
  std::vector<Region> places;
  for (const Chunk& chunk : chunks_) {
    places.push_back({host.data, chunk.bytes});
    host.data += chunk.bytes;
  }
  return places;
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

void DeviceSide::give(const CopyQueue& copies, const DeviceSide& other, size_t number,
                      Part part) const {
  auto from = chunk(number).extents.begin(), to = other.chunk(number).extents.begin();
  size_t from_at = 0, to_at = 0;  // of the extents in the chunk
  const Part own = within(part, std::min(chunk(number).bytes, other.chunk(number).bytes));
  for (size_t at = own.begin, end = at; at < own.end; at = end) {
    while (at >= from_at + from->bytes) from_at += (from++)->bytes;
    while (at >= to_at + to->bytes) to_at += (to++)->bytes;
    end = std::min({own.end, from_at + from->bytes, to_at + to->bytes});
    const at::Tensor source = part_of(from->tensor, from->begin + at - from_at, end - at),
                     target = part_of(to->tensor, to->begin + at - to_at, end - at);
    const bool one_memory = same_storage(source, target) && place_of(source) == place_of(target);
    if (!one_memory) copies.within(target, source);
  }
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
