#pragma once
// Measures copy costs: some devices map, protect or move a whole block to copy a part.
#include <cstddef>
#include <string>

namespace hccl_like {

class DeviceAccess;
class Devices;

// A host copy of n bytes of an m-byte block takes about (1 - per_block) * n + per_block * m, in
// units of the time per byte of a whole-block copy.
struct CopyCosts {
  double per_block = 0;  // 0 to 1; 0: below measurement noise or unknown
  bool known = false;
  std::string measured;  // the measurement, or why it failed; for logs

  // True if copying `whole` bytes of blocks beats copying `bytes` in parts that touch `parts` bytes
  // of blocks. Requires a factor of 1.5, because copies of parts overlap with the network.
  bool favour_whole(size_t bytes, size_t whole, size_t parts) const;
};

// Measures on the first call for a device: about 20 ms, up to 100 ms on a busy host, at least one
// round of 8 MiB and 18 to 33 parts of 64 KiB. Uses 8 MiB of device memory. Never throws; on
// failure the costs are unknown. `access` is a non-direct() accelerator. Any thread. The result
// lives as long as the process.
const CopyCosts& copy_costs_of(Devices& devices, const DeviceAccess& access);

}  // namespace hccl_like
