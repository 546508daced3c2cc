#pragma once
// Cuts a large request into laps, each a call of its own on a part of every chunk, so that one lap is copied while
// another is on the network.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/layout.h"
#include "device/exported_memory.h"
#include "process_group/request.h"

namespace hccl_like {

class CopyQueue;

// Where a request is cut: bytes [lap * step, (lap + 1) * step) of every chunk make a lap.
struct Laps {
  enum class Kind : uint8_t {
    kAlike,  // all ranks know all sizes: every lap is a call of all ranks
    kPairs,  // the two at the ends of a chunk alone know its size: they go on by themselves after the first lap
  };
  Kind kind = Kind::kAlike;
  size_t step = 0;
  size_t count = 0;

  Part part(size_t lap) const { return {lap * step, (lap + 1) * step}; }
  // kPairs: how many laps of `bytes` there are. One of `step` bytes has two, so that the first lap's size tells whether there
  // are others: if one end expects more and the other does not, they differ in the first.
  size_t count_of(size_t bytes) const;
};

// Laps of `most` bytes at most, all chunks of a side together. Nothing if one is enough for this rank, or if parts would be
// too small. What is not alike depends on sizes that other ranks don't know: a rank that needs one lap makes the whole
// call, which is the first lap of those that need several.
std::optional<Laps> laps_of(const Request& request, int ranks, size_t most);
// The one lap of a request that needs no more and is worth a network card's while; nothing for others.
std::optional<Laps> one_lap_of(const Request& request, int ranks, size_t most);

// The memory of one side of a request on its device, as chunks that can be copied in parts. No pointer to a tensor's data
// is used: a part is a view, which the device's own copy finds.
class DeviceSide {
 public:
  DeviceSide() = default;
  // All tensors are plain: contiguous, neither conjugate nor negative.
  DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank, int ranks);

  bool empty() const { return chunks_.empty(); }
  // From now on the memory is named, and neither it nor the storages are kept: they may be given back, or resized, as soon as
  // the order of streams protects the memory.
  void let_go();
  // Copy a part of every chunk, one after the other, from or to host memory.
  void to_host(const CopyQueue& copies, const at::Tensor& host, Part part) const;
  void to_device(const CopyQueue& copies, const at::Tensor& host, Part part) const;
  // How a lap lies in the host memory of these copies.
  Layout layout(Region host, Part part, size_t element_bytes) const;
  size_t bytes(Part part) const;

  // What is exchanged with one rank in a later lap of laps that are not alike.
  struct Message {
    int peer = 0;
    size_t chunk = 0;             // its number
    size_t begin = 0, bytes = 0;  // in the host memory of these copies
    size_t whole = 0;             // of the chunk
  };
  // Where each chunk lies for network cards; nothing if one of them is not one piece, or is not exported. What keeps it
  // there is held.
  struct Exports {
    ExportedMemories& memories;
    const Device& device;
    int index = 0;
    std::vector<std::shared_ptr<const ExportedMemory>> held{};
    std::string why_not{};
  };
  std::optional<std::vector<Region>> places(Exports& exports) const;
  // How a lap lies there.
  Layout layout(const std::vector<Region>& places, Part part, size_t element_bytes) const;
  // A part of the chunk with that number.
  Region place(const std::vector<Region>& places, size_t number, Part part) const;
  // Copies a part of a chunk to the same chunk of another side, within the device.
  void to_device(const CopyQueue& copies, const DeviceSide& other, size_t number, Part part) const;

  // `root` is at the other end of what is not a chunk for each rank.
  std::vector<Message> messages(const Laps& laps, size_t lap, int root) const;

  // Whether a lap of `other` may be written while a later lap of this one was not read yet: the two share no memory, or what
  // they share is at the same place of the same chunk.
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
  template <class Visitor>
  void visit(const at::Tensor& host, Part part, Visitor&& visitor) const;

  std::vector<Chunk> chunks_;
  bool single_ = false;    // one chunk of several: only its number tells which
  bool for_ranks_ = true;  // a chunk's number is that of the rank at its other end
};

}  // namespace hccl_like
