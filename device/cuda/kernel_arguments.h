#pragma once
// Arguments of the kernels in kernels.cu, as host and device see them.
#include <stdint.h>

// The arrays that a reduction combines.
struct Sources {
  static constexpr unsigned kMost = 64;
  const void* at[kMost];
};

// The ranks of an all-reduction of little data (hcd_small_group), in addresses of the device.
struct SmallRanks {
  static constexpr unsigned kMost = 64;
  char* areas[kMost];  // by rank
  unsigned rank, ranks;
  uint64_t payload;
  uint64_t* state;
  const uint64_t* stop;
  uint64_t* completed;
  uint64_t fingerprint;
};
// A block of threads makes so many bytes of it.
constexpr unsigned kSmallPart = 8 << 10;
