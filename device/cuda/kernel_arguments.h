#pragma once
// Arguments of the kernels in kernels.cu, as host and device see them.

// The arrays that a reduction combines.
struct Sources {
  static constexpr unsigned kMost = 64;
  const void* at[kMost];
};
