#pragma once
// Device memory that network adapters reach, under addresses by which host code can speak of it
// without touching it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory/mapping.h"
#include "device/device.h"

namespace hccl_like {

// One allocation of a device, as a file. Its bytes are at data() for whoever registers memory or
// names it to an adapter; to the host there is nothing to read. Where the device has no addresses
// of its own, these are set aside for it.
class ExportedMemory {
 public:
  ExportedMemory(ExportedFile file, Mapping set_aside, const DeviceAllocation& allocation,
                 int index);
  ~ExportedMemory();
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  // Which of this process holds all of [at, at + bytes); null for other memory. Any thread; next to
  // nothing where there is none at all.
  static std::shared_ptr<const ExportedMemory> find(const void* at, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  const std::array<uint64_t, 2>& identity() const { return identity_; }
  int file() const { return file_.file.get(); }
  // In the file, where data() begins.
  uint64_t file_offset() const { return file_.offset; }
  uint32_t hmem() const { return hmem_; }
  int index() const { return index_; }

 private:
  friend class ExportedMemories;

  const ExportedFile file_;
  const Mapping set_aside_;  // empty where the device has addresses
  std::byte* const data_;
  const size_t bytes_;
  const std::array<uint64_t, 2> identity_;
  const uint32_t hmem_;
  const int index_;
};

// What was exported, kept for the next operation on the same memory as long as its allocation
// lives. Any thread.
class ExportedMemories {
 public:
  // What stands for the range, and where in that it begins. Lives as long as it is held, and here.
  struct Range {
    std::shared_ptr<const ExportedMemory> memory;
    std::byte* data = nullptr;
  };
  Result<Range> range(const Device& device, int index, hcd_ref ref, size_t bytes);
  // Lets go of all of it, but for what is held by others.
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
  size_t found_ = 0;  // since it was looked for what is freed
};

}  // namespace hccl_like
