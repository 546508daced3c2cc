#pragma once
// Cuts a large request into laps, each a call of its own on a part of every chunk, so that one lap
// is copied while another is on the network.
#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "collectives/schedule/layout.h"
#include "process_group/calls/request.h"

namespace hccl_like {

// Where a request is cut: bytes [lap * step, (lap + 1) * step) of every chunk make a lap.
struct Laps {
  enum class Kind : uint8_t {
    kAlike,  // all ranks know all sizes: every lap is a call of all ranks
    kPairs,  // the two at the ends of a chunk alone know its size: they go on by themselves after
             // the first lap
  };
  Kind kind = Kind::kAlike;
  size_t step = 0;
  size_t count = 0;

  Part part(size_t lap) const { return {lap * step, (lap + 1) * step}; }
  // kPairs: how many laps of `bytes` there are. One of `step` bytes has two, so that the first
  // lap's size tells whether there are others: if one end expects more and the other does not, they
  // differ in the first.
  size_t count_of(size_t bytes) const;
};

// Of a tensor that is cut by rows.
size_t row_bytes(const at::Tensor& tensor);

// Laps of `most` bytes at most, all chunks of a side together. Nothing if one is enough for this
// rank, or if parts would be too small. What is not alike depends on sizes that other ranks don't
// know: a rank that needs one lap makes the whole call, which is the first lap of those that need
// several.
std::optional<Laps> laps_of(const Request& request, int ranks, size_t most);
// The one lap of a request that needs no more and is worth a network card's while; nothing for
// others.
std::optional<Laps> one_lap_of(const Request& request, int ranks, size_t most);

}  // namespace hccl_like
