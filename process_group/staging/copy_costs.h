#pragma once
// What a device spends on a copy beside the bytes: some map, protect or move a whole block of
// memory for a part of it.
#include <cstddef>
#include <string>

namespace hccl_like {

class DeviceAccess;
class Devices;

// A copy of n bytes of a block of m bytes, to or from the host, takes about (1 - per_block) * n +
// per_block * m, in units of the time that a byte takes when the whole block is copied.
struct CopyCosts {
  double per_block = 0;  // 0 to 1; 0: too little to be told from nothing, or not known
  bool known = false;
  std::string measured;  // how that is known or why not, for people

  // Whether `bytes`, which lie in blocks of `whole` bytes, are copied sooner each block at once
  // than in parts, which each take a block: of `parts` bytes, all together. Parts are worth half as
  // much time again, since copies of parts overlap with the network.
  bool favour_whole(size_t bytes, size_t whole, size_t parts) const;
};

// Measured when first called for a device: that blocks for some 20 ms, for 100 ms on a busy host,
// and for one copy of 8 MiB there and back where that takes longer. It takes 8 MiB of the device's
// memory meanwhile. Never throws: what cannot be measured is not known. `access` is of an
// accelerator that is not direct(). Any thread; what is returned lives as long as the process.
const CopyCosts& copy_costs_of(Devices& devices, const DeviceAccess& access);

}  // namespace hccl_like
