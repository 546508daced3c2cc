#pragma once
// One rank's symmetric memory, and the way in which other ranks get at it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Allocator.h>

#include "device/host/shared_memory.h"
#include "process_group/device/device_access.h"
#include "process_group/symmetric/signals.h"

namespace hccl_like {

// What other ranks need to map an Allocation. Plain bytes.
struct AllocationToken {
  SharedMemoryToken host;  // of host memory
  hcd_ipc_handle
      device{};  // of device memory, which begins `offset` bytes into what the handle opens
  uint64_t offset = 0;
  uint64_t buffer_bytes = 0;
  uint64_t pad_bytes = 0;
};

// Device memory that its owner has freed and a peer may still be using: torch's allocator would
// hand it out again, so it is kept until all ranks it was shared with have let go of it. Any
// thread.
class Limbo {
 public:
  using Sharers = std::vector<std::shared_ptr<const Signals>>;

  // Frees `memory` now if it can be, else on a later call.
  void add(c10::DataPtr memory, Sharers sharers);
  void sweep();

 private:
  struct Kept {
    c10::DataPtr memory;
    Sharers sharers;
    pid_t process;  // that made it: a forked child frees nothing of its parent's
  };
  static bool used(const Sharers& sharers);

  std::mutex mutex_;
  std::vector<Kept> kept_;
};

// The buffer, and behind it the signal pad: memory for the user's own kernels, all zeros at first.
// (The signals of SymmetricMemory itself are in host memory, where every device's streams can wait
// for them.)
//
// Device memory comes from torch's allocator for the device; of the host it is shared memory.
class Allocation {
 public:
  // Throws kUnsupported, with what is missing, if the device cannot share memory. Blocks until the
  // current stream has passed: earlier users of the memory are done with it then.
  Allocation(const DeviceAccess& access, size_t buffer_bytes, size_t pad_bytes,
             std::shared_ptr<Limbo> limbo);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  std::byte* buffer() const { return base_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  size_t pad_bytes() const { return pad_bytes_; }
  static size_t pad_offset(size_t buffer_bytes);
  bool holds(const void* at) const;

  AllocationToken token() const;
  // From now on the ranks behind `signals` may be using it.
  void share(std::shared_ptr<const Signals> signals);

  const DeviceAccess& access() const { return access_; }

 private:
  const DeviceAccess& access_;
  const size_t buffer_bytes_;
  const size_t pad_bytes_;
  const std::shared_ptr<Limbo> limbo_;
  SharedMemory host_;
  c10::DataPtr device_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  Limbo::Sharers sharers_;
};

// Another rank's Allocation, mapped here. The device has to be done with it before it goes.
class PeerAllocation {
 public:
  // Throws.
  PeerAllocation(const DeviceAccess& access, const AllocationToken& token);

  std::byte* buffer() const { return base_; }

 private:
  SharedMemory host_;
  ImportedRange device_;
  std::byte* base_ = nullptr;
};

}  // namespace hccl_like
