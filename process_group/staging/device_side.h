#pragma once
// The memory that a request uses on its device, and how it is copied lap by lap.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/schedule/layout.h"
#include "device/exported_memory.h"
#include "process_group/calls/laps.h"
#include "process_group/calls/request.h"

namespace hccl_like {

class CopyQueue;

// A view of these bytes of a contiguous tensor of a device, which no operator makes.
at::Tensor part_of(const at::Tensor& tensor, size_t begin, size_t bytes);

// The memory of one side of a request on its device, as chunks that can be copied in parts. No
// pointer to a tensor's data is used: a part is a view, which the device's own copy finds.
class DeviceSide {
 public:
  DeviceSide() = default;
  // All tensors are plain: contiguous, neither conjugate nor negative.
  DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank, int ranks);

  bool empty() const { return chunks_.empty(); }
  // From now on the memory is named, and neither it nor the storages are kept: they may be given
  // back, or resized, as soon as the order of streams protects the memory.
  void let_go();
  // Copy a part of every chunk, one after the other, from or to host memory. What is in one piece
  // on both sides is one copy.
  void to_host(const CopyQueue& copies, const at::Tensor& host, Part part) const;
  void to_device(const CopyQueue& copies, const at::Tensor& host, Part part) const;
  // How a lap lies in the host memory of these copies.
  Layout layout(Region host, Part part, size_t element_bytes) const;
  size_t bytes(Part part) const;
  // Of the storages that copies of this part touch, a storage as often as there are copies of it.
  size_t bytes_touched(Part part) const;
  // Where the chunks lie in host memory that holds all of them, one after the other.
  std::vector<Region> places(Region host) const;

  // What is exchanged with one rank in a later lap of laps that are not alike.
  struct Message {
    int peer = 0;
    size_t chunk = 0;             // its number
    size_t begin = 0, bytes = 0;  // in the host memory of these copies
    size_t whole = 0;             // of the chunk
  };
  // Where each chunk lies on the device for network cards; nothing if one of them is not one piece,
  // or is not exported. What keeps it there is held.
  struct Exports {
    ExportedMemories& memories;
    const Device& device;
    int index = 0;
    std::vector<std::shared_ptr<const ExportedMemory>> held{};
    std::string why_not{};
  };
  std::optional<std::vector<Region>> places(Exports& exports) const;
  // How a lap lies in such places.
  Layout layout(const std::vector<Region>& places, Part part, size_t element_bytes) const;
  // A part of the chunk with that number.
  Region place(const std::vector<Region>& places, size_t number, Part part) const;
  // Copies a part of a chunk to the same chunk of another side, within the device.
  void to_device(const CopyQueue& copies, const DeviceSide& other, size_t number, Part part) const;

  // `root` is at the other end of what is not a chunk for each rank.
  std::vector<Message> messages(const Laps& laps, size_t lap, int root) const;

  // Whether a lap of `other` may be written while a later lap of this one was not read yet: the two
  // share no memory, or what they share is at the same place of the same chunk.
  bool may_be_overwritten_by(const DeviceSide& other) const;

 private:
  struct Extent {
    at::Tensor tensor;
    size_t begin = 0;  // in it
    size_t bytes = 0;
  };
  struct Chunk {
    size_t number = 0;
    std::vector<Extent> extents;
    size_t bytes = 0;
  };

  void add(size_t number, std::vector<Extent> extents);
  const Chunk& chunk(size_t number) const;
  // visit(tensor, begin, end, at): these bytes, counted from the tensor's beginning, are at byte
  // `at` of the part's copy.
  template <class Visitor>
  void visit(Part part, Visitor&& visit) const;
  template <class Copy>
  void copy(const at::Tensor& host, Part part, Copy&& copy) const;

  std::vector<Chunk> chunks_;
  bool single_ = false;    // one chunk of several: only its number tells which
  bool for_ranks_ = true;  // a chunk's number is that of the rank at its other end
};

}  // namespace hccl_like
