#pragma once
// One rank's symmetric memory and its mapping by other ranks.
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

// Trivially copyable token by which other ranks map an Allocation.
struct AllocationToken {
  SharedMemoryToken host;  // for host memory
  hcd_ipc_handle
      device{};  // for device memory; the buffer begins `offset` bytes into the imported range
  uint64_t offset = 0;
  uint64_t buffer_bytes = 0;
  uint64_t pad_bytes = 0;
};

// Keeps freed device memory from torch's allocator until every sharer has left. Thread-safe.
class Limbo {
 public:
  using Sharers = std::vector<std::shared_ptr<const Signals>>;

  // Frees `memory` now if no sharer remains, else in a later sweep().
  void add(c10::DataPtr memory, Sharers sharers);
  void sweep();

 private:
  struct Kept {
    c10::DataPtr memory;
    Sharers sharers;
    pid_t process;  // owner: a forked child must not free it
  };
  static bool used(const Sharers& sharers);

  std::mutex mutex_;
  std::vector<Kept> kept_;
};

// The buffer, followed by a zero-filled signal pad for user kernels. SymmetricMemory's own signals
// are in host memory, where all streams can wait. Host allocations are shared memory.
class Allocation {
 public:
  // Throws kUnsupported if the device cannot share memory. Waits for the current stream, so that
  // earlier users of the memory have finished.
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
  // Registers the ranks behind `signals` as users.
  void share(std::shared_ptr<const Signals> signals);

  const DeviceAccess& access() const { return access_; }

 private:
  const SymmetricUse use_;
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

// Mapping of another rank's Allocation. Destroy only after the device has finished with it.
class PeerAllocation {
 public:
  PeerAllocation(const DeviceAccess& access, const AllocationToken& token);

  std::byte* buffer() const { return base_; }

 private:
  SharedMemory host_;
  ImportedRange device_;
  std::byte* base_ = nullptr;
};

}  // namespace hccl_like
