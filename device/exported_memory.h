#pragma once
// Device memory that network adapters access, with addresses that host code may name but not touch.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory/mapping.h"
#include "device/device.h"

namespace hccl_like {

// One device allocation exported as a file. data() is the address for memory registration and for
// the adapter; the host must not access it. Without device addresses, an address range is reserved.
class ExportedMemory {
 public:
  ExportedMemory(ExportedFile file, Mapping set_aside, const DeviceAllocation& allocation,
                 int index);
  ~ExportedMemory();
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  // The export of this process that holds all of [at, at + bytes), or null. Thread-safe; nearly
  // free if there are no exports.
  static std::shared_ptr<const ExportedMemory> find(const void* at, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  const std::array<uint64_t, 2>& identity() const { return identity_; }
  int file() const { return file_.file.get(); }
  // The offset of data() in the file.
  uint64_t file_offset() const { return file_.offset; }
  uint32_t hmem() const { return hmem_; }
  int index() const { return index_; }

 private:
  friend class ExportedMemories;

  const ExportedFile file_;
  const Mapping set_aside_;  // empty if the device has addresses
  std::byte* const data_;
  const size_t bytes_;
  const std::array<uint64_t, 2> identity_;
  const uint32_t hmem_;
  const int index_;
};

// Cache of exports: keeps each one for later operations until its allocation is freed. Thread-safe.
class ExportedMemories {
 public:
  // The export of a range, and the range's address in it. The cache also holds it.
  struct Range {
    std::shared_ptr<const ExportedMemory> memory;
    std::byte* data = nullptr;
  };
  Result<Range> range(const Device& device, int index, hcd_ref ref, size_t bytes);
  // Drops the cache's references.
  void clear();
  size_t size() const;

 private:
  struct Kept {
    const Device* device;
    hcd_ref begin;
    std::shared_ptr<const ExportedMemory> memory;
  };

  void drop_freed();

  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
  size_t found_ = 0;  // lookups since the last check for freed allocations
};

}  // namespace hccl_like
