#pragma once
// Device memory of a request, and its copies slice by slice.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/schedule/layout.h"
#include "device/exported_memory.h"
#include "process_group/calls/request.h"
#include "process_group/calls/slices.h"

namespace hccl_like {

class CopyQueue;

// A view of bytes of a contiguous device tensor, made without an operator.
at::Tensor part_of(const at::Tensor& tensor, size_t begin, size_t bytes);

// Device memory of one side of a request, as chunks that can be copied in parts. Parts are tensor
// views, not data pointers; the device's copy resolves them.
class DeviceSide {
 public:
  DeviceSide() = default;
  // All tensors are contiguous, neither conjugate nor negative.
  DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank, int ranks);

  bool empty() const { return chunks_.empty(); }
  // Drops the storage references. The program may free or resize storages that stream order
  // protects.
  void let_go();
  // Copies a part of every chunk from or to packed host memory. Adjacent pieces are one copy.
  // `but`: the number of a chunk to leave out.
  void to_host(const CopyQueue& copies, const at::Tensor& host, Part part,
               std::optional<size_t> but = std::nullopt) const;
  void to_device(const CopyQueue& copies, const at::Tensor& host, Part part,
                 std::optional<size_t> but = std::nullopt) const;
  // Layout of a slice in that host memory.
  Layout layout(Region host, Part part, size_t element_bytes) const;
  size_t bytes(Part part) const;
  // Bytes of the storages that copies of this part touch, counted once per copy.
  size_t bytes_touched(Part part) const;
  // All chunks as one range of the device's memory, or nothing if they are not adjacent. Without
  // bytes, an empty range.
  std::optional<DeviceRange> range() const;
  // The same chunks, packed in `memory`, which has bytes(all) bytes and lies on the device.
  DeviceSide packed_in(const at::Tensor& memory) const;
  // Pairs of a piece of `memory` and the piece of the device's memory that belongs there.
  std::vector<std::pair<at::Tensor, at::Tensor>> pieces_in(const at::Tensor& memory) const;
  // Addresses of whole chunks packed in host memory.
  std::vector<Region> places(Region host) const;

  // A message of a kPairs slice after the first.
  struct Message {
    int peer = 0;
    size_t chunk = 0;             // chunk number
    size_t begin = 0, bytes = 0;  // in the packed host memory
    size_t whole = 0;             // bytes of the chunk
  };
  // Addresses for network cards; nothing if a chunk is not contiguous or not exported. `held` keeps
  // the memory exported.
  struct Exports {
    ExportedMemories& memories;
    const Device& device;
    int index = 0;
    std::vector<std::shared_ptr<const ExportedMemory>> held{};
    std::string why_not{};
  };
  std::optional<std::vector<Region>> places(Exports& exports) const;
  // Layout of a slice in such places.
  Layout layout(const std::vector<Region>& places, Part part, size_t element_bytes) const;
  Region place(const std::vector<Region>& places, size_t number, Part part) const;
  // Copies a part of a chunk to the same chunk of `other`, within the device, unless both are one
  // memory. Requires CopyQueue::can_copy_within().
  void give(const CopyQueue& copies, const DeviceSide& other, size_t number, Part part) const;

  // `root` is the peer of a side without a chunk for each rank.
  std::vector<Message> messages(const Slices& slices, size_t slice, int root) const;

  // True if a slice of `other` may be written before a later slice of this side is read: they share
  // no memory, or the shared memory is at the same place of the same chunk.
  bool may_be_overwritten_by(const DeviceSide& other) const;

 private:
  struct Extent {
    at::Tensor tensor;
    size_t begin = 0;  // in the tensor
    size_t bytes = 0;
  };
  struct Chunk {
    size_t number = 0;
    std::vector<Extent> extents;
    size_t bytes = 0;
  };

  void add(size_t number, std::vector<Extent> extents);
  const Chunk& chunk(size_t number) const;
  // visit(tensor, begin, end, at): bytes [begin, end) of `tensor` are at byte `at` of the packed
  // part.
  template <class Visitor>
  void visit(Part part, Visitor&& visit, std::optional<size_t> but = std::nullopt) const;
  template <class Copy>
  void copy(const at::Tensor& host, Part part, Copy&& copy,
            std::optional<size_t> but = std::nullopt) const;

  std::vector<Chunk> chunks_;
  bool single_ = false;    // one of several chunks, identified by its number
  bool for_ranks_ = true;  // the chunk number is the peer's rank
};

}  // namespace hccl_like
