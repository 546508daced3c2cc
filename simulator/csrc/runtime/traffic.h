#pragma once
// Counts the bytes that the devices move, and models the time that this takes.
//   TORCH_SIM_LINK_GBPS    what a device reads from and writes to peers' memory
//   TORCH_SIM_HOST_GBPS    what a device copies from the host, and what it copies to the host
//   TORCH_SIM_KERNEL_GBPS  results of kernels, and copies within a device
// in 1e9 bytes a second. Each is one resource of a device of this process (the host bus is two, one
// a direction), which all streams share: pieces of work occupy it one after the other. Without the
// setting a piece of work takes what the host takes.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace torch_sim {

// Bytes by path, then events, of all devices of the process since `reset_traffic`.
enum class Count { kDevice, kPeer, kHostToDevice, kDeviceToHost, kKernels, kWaits, kCount };
void add_traffic(Count count, uint64_t amount);
uint64_t traffic(Count count);
void reset_traffic();

// Throws std::invalid_argument if one of the settings makes no sense.
void check_rates();

// Work on no more bytes than this is done sooner than a thread is woken for it. None is if time is
// modelled: the caller would sleep.
size_t short_work();

// One piece of a device's work. Counts what it is told of, and lasts until that is over: the end of
// its life comes asleep, holding nothing. To be made before the windows that the work opens.
class WorkTime {
 public:
  explicit WorkTime(int device);
  ~WorkTime();
  WorkTime(const WorkTime&) = delete;
  WorkTime& operator=(const WorkTime&) = delete;

  // A copy, told before it is made. An address is the kernel's or the host's.
  void copy(const void* to, const void* from, size_t bytes);
  // A kernel with a result of that size, and how much of peers' memory it reads and writes.
  void kernel(size_t result, size_t peers);
  // `bytes` if the address is in memory of a peer or of another device, else 0.
  size_t if_peers(const void* at, size_t bytes) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum Resource { kLink, kHostToDevice, kDeviceToHost, kCompute, kResources };
  struct Occupied;

  void occupy(Resource resource, size_t bytes);

  const int device_;
  const Clock::time_point start_;
  Clock::time_point end_ = start_;
};

}  // namespace torch_sim
