#pragma once
// torch's SymmetricMemoryAllocator: torch.distributed._symmetric_memory.empty and rendezvous.
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "process_group/device/devices.h"
#include "process_group/symmetric/memory.h"

namespace hccl_like {

// Functions that need the Python interpreter.
struct Interpreter {
  Unlocked unlocked;
  // Initialises the device, as its first tensor does.
  std::function<void(c10::DeviceType)> prepare;
};

// One instance for the host and one for the accelerator. Thread-safe.
class Allocator final : public c10d::symmetric_memory::SymmetricMemoryAllocator {
 public:
  Allocator(Devices& devices, c10::DeviceType type, Interpreter interpreter);
  ~Allocator() override;

  // The first call registers torch.ops.symm_mem for this device type.
  void* alloc(size_t size, int device_idx, const std::optional<std::string>& group_name) override;
  void free(void* ptr) override;
  size_t get_alloc_size(void* ptr) override;
  // Collective call. Returns null if `ptr` is not in memory of alloc().
  c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory> rendezvous(
      void* ptr, const std::optional<std::string>& group_name) override;
  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return type_; }
  // Unique: torch looks allocators up by name.
  std::string name() override { return type_ == c10::kCPU ? "hccl-like:cpu" : "hccl-like"; }
  bool has_allocation(void* ptr);  // overrides since torch 2.12
  // Frees memory whose users on other ranks have left.
  void sweep() { state_->limbo->sweep(); }

 private:
  struct Entry {
    std::shared_ptr<Allocation> allocation;
    std::optional<std::string> group;  // group passed to alloc()
    std::map<std::string, c10::intrusive_ptr<Memory>> memories;
    pid_t process = 0;  // owner
  };
  // Number of rendezvous of a group over a store; the same on all ranks.
  struct Meetings {
    c10::intrusive_ptr<c10d::Store> store;
    int count = 0;
  };
  struct State {
    std::shared_ptr<Limbo> limbo = std::make_shared<Limbo>();
    std::map<std::byte*, Entry> entries;  // by address
    std::map<std::string, Meetings> meetings;
  };

  c10::Device device(int index) const;
  Entry* find(const void* ptr);
  c10::intrusive_ptr<Memory> meet(std::shared_ptr<Allocation> allocation, const std::string& group);

  Devices& devices_;
  const c10::DeviceType type_;
  const Interpreter interpreter_;
  std::once_flag operators_;
  std::mutex mutex_;
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

// Registers both as torch's default for device types without one, without operators. Call once.
void register_symmetric_memory(Devices& devices, const Interpreter& interpreter);

// Allocator::sweep() of both.
void sweep_symmetric_memory();

}  // namespace hccl_like
