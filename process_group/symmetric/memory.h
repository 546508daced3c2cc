#pragma once
// torch's SymmetricMemory over memory that the ranks of one host map.
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

// One for each (allocation, group). It keeps the rank's own memory and maps the others', until the
// last user lets go of it: the allocator, which holds it as long as the tensor lives, and whoever
// rendezvous() returned it to. Then it waits for the device, which may still use the mappings.
//
// Signals are given and waited for in the order of the calling thread's current stream, without
// blocking the host, where the device keeps stream order; else (and on the host) a call blocks. A
// signal that does not come fails all ranks: the call raises if it blocks, else the next one that
// is made does, on this or any other rank.
//
// A time-out of 0 stands for that of the group. Any thread.
class Memory final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  Memory(const Meeting& meeting, std::shared_ptr<Allocation> allocation, Acquaintance acquaintance,
         std::chrono::milliseconds default_timeout, Unlocked unlocked);
  ~Memory() override;

  // All raise once the memory has failed, so what they give is never about a group that is out of
  // step.
  std::vector<void*> get_buffer_ptrs() override;
  std::vector<void*> get_signal_pad_ptrs() override;
  // Arrays in memory of the device, for kernels.
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

  // For operators, which signal on a channel that no user can name.
  struct Turn {
    std::shared_ptr<Signals> signals;
    int channel;
    std::chrono::milliseconds timeout;
    std::optional<Error> meet() const {
      return signals->barrier(channel, Deadline::after(timeout));
    }
  };
  Turn turn() const;
  // Does `step` in the order of the current stream; see Steps. Throws if the memory has failed.
  void run(const char* what, Steps::Step step, StepNeeds needs = {});
  const DeviceAccess& access() const { return access_; }
  // Whether the tensor lies in this rank's part. A step must not hold such a tensor: this object
  // goes with the tensor.
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
