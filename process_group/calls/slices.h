#pragma once
// Cuts a large request into laps: calls on a part of every chunk that overlap copies and network.
#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "collectives/schedule/layout.h"
#include "process_group/calls/request.h"

namespace hccl_like {

// Lap i carries bytes [i * step, (i + 1) * step) of every chunk.
struct Laps {
  enum class Kind : uint8_t {
    kAlike,  // all ranks know all sizes; every lap is a call of all ranks
    kPairs,  // only the two peers of a chunk know its size; laps after the first
             // are messages between them
  };
  Kind kind = Kind::kAlike;
  size_t step = 0;
  size_t count = 0;

  Part part(size_t lap) const { return {lap * step, (lap + 1) * step}; }
  // kPairs: number of laps for a chunk of `bytes`. A chunk of exactly `step` bytes has two laps, so
  // that peers who disagree about the number of laps find the mismatch in the first.
  size_t count_of(size_t bytes) const;
};

// Bytes of one row of the first dimension.
size_t row_bytes(const at::Tensor& tensor);

// Laps of at most `most` bytes over all chunks of a side. Returns nothing if one lap is enough for
// this rank or the parts would be too small. With kPairs, ranks may disagree: the whole call of a
// rank that needs one lap matches the first lap of ranks that need several.
std::optional<Laps> laps_of(const Request& request, int ranks, size_t most);
// The single lap of a request that fits in one and reaches the rendezvous threshold. Nothing for
// other requests and for reductions.
std::optional<Laps> one_lap_of(const Request& request, int ranks, size_t most);

}  // namespace hccl_like
