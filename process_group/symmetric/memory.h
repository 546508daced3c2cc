#pragma once
// torch's SymmetricMemory for the ranks of one host.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "process_group/symmetric/allocation.h"
#include "process_group/symmetric/rendezvous.h"
#include "process_group/symmetric/steps.h"

namespace hccl_like {

// One for each (allocation, group). The allocator (while the tensor lives) and callers of
// rendezvous() share ownership. The destructor waits for the device, which may use the mappings.
//
// On stream-ordered devices signals follow the calling thread's current stream and do not block the
// host; elsewhere calls block. A missing signal fails all ranks: a blocking call raises; otherwise
// the next call on any rank raises. A timeout of 0 means the group's timeout. Thread-safe.
class Memory final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  Memory(const Handshake& handshake, std::shared_ptr<Allocation> allocation,
         Acquaintance acquaintance, std::chrono::milliseconds default_timeout, Unlocked unlocked);
  ~Memory() override;

  // All raise after a failure, so pointers are never from a group that is out of step.
  std::vector<void*> get_buffer_ptrs() override;
  std::vector<void*> get_signal_pad_ptrs() override;
  // Device arrays for kernels.
  void** get_buffer_ptrs_dev() override;
  void** get_signal_pad_ptrs_dev() override;

  size_t get_buffer_size() override { return allocation_->buffer_bytes(); }
  size_t get_offset() override { return 0; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }
  int get_rank() override { return rank_; }
  int get_world_size() override { return static_cast<int>(buffers_.size()); }
  c10::Device get_device() override { return access_.device(); }
  bool world_within_direct_access() override { return true; }

  void barrier(int channel, size_t timeout_ms) override;
  void put_signal(int dst_rank, int channel, size_t timeout_ms) override;
  void wait_signal(int src_rank, int channel, size_t timeout_ms) override;

  // Barrier of the operators, on a channel that users cannot name.
  struct Turn {
    std::shared_ptr<Signals> signals;
    int channel;
    std::chrono::milliseconds timeout;
    std::optional<Error> meet() const {
      return signals->barrier(channel, Deadline::after(timeout));
    }
  };
  Turn turn() const;
  // Runs `step` in the order of the current stream; see Steps. Throws after a failure.
  void run(const char* what, Steps::Step step, StepNeeds needs = {});
  const DeviceAccess& access() const { return access_; }
  // True if the tensor is in this rank's memory. A step must not hold it: the tensor owns this
  // object.
  bool is_own(const at::Tensor& tensor) const {
    return allocation_->holds(tensor.const_data_ptr());
  }

 private:
  void throw_if_failed(const char* what) const;
  void check_channel(int channel) const;
  void check_rank(int rank) const;
  std::chrono::milliseconds timeout(size_t timeout_ms) const;
  void** on_device(at::Tensor& array, const std::vector<void*>& pointers);

  const DeviceAccess& access_;
  const std::string group_;
  const pid_t process_;
  const int rank_;
  const std::chrono::milliseconds default_timeout_;
  const Unlocked unlocked_;
  std::shared_ptr<Allocation> allocation_;
  Acquaintance acquaintance_;
  std::unique_ptr<Steps> steps_;
  std::vector<void*> buffers_;
  std::vector<void*> pads_;
  at::Tensor buffers_on_device_;
  at::Tensor pads_on_device_;
};

}  // namespace hccl_like
