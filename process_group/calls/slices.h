#pragma once
// Cuts a large request into slices: calls on a part of every chunk that overlap copies and network.
#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "collectives/schedule/layout.h"
#include "core/settings/config.h"
#include "process_group/calls/request.h"

namespace hccl_like {

// Slice i carries bytes [i * step, (i + 1) * step) of every chunk.
struct Slices {
  enum class Kind : uint8_t {
    kAlike,   // all ranks know all sizes; every slice is a call of all ranks
    kPairs,   // only the two peers of a chunk know its size; slices after the first
              // are messages between them
    kPhases,  // HostPhases cuts the call
  };
  Kind kind = Kind::kAlike;
  size_t step = 0;
  size_t count = 0;

  Part part(size_t slice) const { return {slice * step, (slice + 1) * step}; }
  // kPairs: number of slices for a chunk of `bytes`. A chunk of exactly `step` bytes has two
  // slices, so that peers who disagree about the number of slices find the mismatch in the first.
  size_t count_of(size_t bytes) const;
};

// Smaller parts of a chunk cost more in copies than they hide.
inline constexpr size_t kLeastStep = 16 << 10;

// Bytes of a slice per side. Half of the engine's bytes in flight for one operation: the engine's
// slices still overlap, and the first copy in and the last copy out, which overlap with nothing,
// stay short.
inline size_t bytes_of_slice(const Config& config) {
  return config.slice_bytes * config.slice_window / 2;
}

// Whether all tensors have one type: others are not cut.
bool of_one_type(const Request& request);

// Bytes of one row of the first dimension.
size_t row_bytes(const at::Tensor& tensor);

// Slices of at most `most` bytes over all chunks of a side. Returns nothing if one slice is enough
// for this rank or the parts would be too small. With kPairs, ranks may disagree: the whole call of
// a rank that needs one slice matches the first slice of ranks that need several.
std::optional<Slices> slices_of(const Request& request, int ranks, size_t most);
// The single slice of a request that fits in one and has a chunk of at least `least` bytes. Nothing
// for other requests.
std::optional<Slices> one_slice_of(const Request& request, int ranks, size_t most, size_t least);

}  // namespace hccl_like
