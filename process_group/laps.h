#pragma once
// Cuts a large request into laps, each a call of its own on a part of every chunk, so that one lap is copied while
// another is on the network.
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/layout.h"
#include "process_group/request.h"

namespace hccl_like {

// Where a request is cut. The same on all ranks: it follows from what they agree about.
struct Laps {
  size_t chunks = 1;       // of a side that holds those of all ranks
  size_t chunk_bytes = 0;  // the same for all
  size_t step = 0;         // bytes of each chunk in a lap, but for the last
  size_t count = 0;

  // The bytes of each chunk that a lap carries.
  Part part(size_t lap) const { return {lap * step, std::min(chunk_bytes, (lap + 1) * step)}; }
};

// Laps of `most` bytes at most, all chunks of a side together. Nothing if one lap is enough, and for requests that cannot be cut:
// of messages and wherever parts differ in size, because there not all ranks know how many laps there would be.
std::optional<Laps> laps_of(const Request& request, int ranks, size_t most);

// The memory of one side of a request on its device, as chunks that can be copied in parts. No pointer to a tensor's data
// is used: a part is a view, which the device's own copy finds.
class DeviceSide {
 public:
  DeviceSide() = default;
  // All tensors are plain: contiguous, neither conjugate nor negative.
  DeviceSide(const Side& side, const std::vector<at::Tensor>& tensors, int rank, int ranks);

  bool empty() const { return chunks_.empty(); }
  // Copy a part of every chunk, one after the other, from or to host memory, and block until that is done.
  void to_host(const at::Tensor& host, Part part) const;
  void to_device(const at::Tensor& host, Part part) const;
  // How a lap lies in the host memory of these copies.
  Layout layout(Region host, size_t element_bytes) const;
  size_t bytes(Part part) const { return chunks_.size() * (part.end - part.begin); }

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
  };

  template <class Visitor>
  void visit(const at::Tensor& host, Part part, Visitor&& visitor) const;

  std::vector<Chunk> chunks_;
  bool single_ = false;  // one chunk of several: only its number tells which
};

}  // namespace hccl_like
