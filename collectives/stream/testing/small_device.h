#pragma once
// Test support: the fake device of executors.h with all_reduce_small, for sums of uint64.
#include <atomic>
#include <thread>

#include "collectives/stream/testing/executors.h"

namespace hccl_like::on_streams {

inline std::atomic<uint32_t> late_rank{UINT32_MAX};  // its kernels do not end
inline std::atomic<int> freed{0};                    // allocations

// One rank's kernel. Its area begins with its number of calls; flags and payloads follow, twice.
class SmallKernel {
 public:
  SmallKernel(const hcd_small_group& group, hcd_ref out, hcd_ref in, uint64_t count)
      : group_(group), count_(count), out_(at(out)), in_(at(in)) {
    for (uint32_t rank = 0; rank < group.ranks; ++rank) areas_.push_back(at(group.areas[rank]));
  }

  void operator()() const {
    store(group_.state, 1);
    const uint64_t number = ++*areas_[group_.rank];
    std::copy_n(in_, count_, payload(group_.rank, number));
    for (uint32_t rank = 0; rank < group_.ranks; ++rank)
      store(flag(rank, group_.rank, number), group_.fingerprint + number);
    bool good = true;
    for (uint32_t rank = 0; rank < group_.ranks && good; ++rank)
      good = await(flag(group_.rank, rank, number), group_.fingerprint + number);
    for (uint64_t i = 0; i < count_; ++i) out_[i] = good ? sum(i, number) : UINT64_MAX;
    if (good) store(group_.completed, number);
    while (late_rank == group_.rank) std::this_thread::yield();
    store(group_.state, 0);
  }

 private:
  static uint64_t* at(hcd_ref ref) {
    return reinterpret_cast<uint64_t*>(fake_device::find(ref, 0));
  }
  static void store(volatile uint64_t* word, uint64_t value) {
    __atomic_store_n(const_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
  }
  uint64_t* flag(uint32_t of, uint32_t from, uint64_t number) const {
    return areas_[of] + 1 + number % 2 * group_.ranks + from;
  }
  uint64_t* payload(uint32_t of, uint64_t number) const {
    return areas_[of] + (HCD_SMALL_HEAD(group_.ranks) + number % 2 * group_.payload) / kUint64;
  }
  bool await(const uint64_t* flag, uint64_t wanted) const {
    while (fake_device::load(flag) != wanted) {
      if (fake_device::load(group_.stop) != 0) return false;
      std::this_thread::yield();
    }
    return true;
  }
  uint64_t sum(uint64_t i, uint64_t number) const {
    uint64_t all = 0;
    for (uint32_t rank = 0; rank < group_.ranks; ++rank) all += payload(rank, number)[i];
    return all;
  }

  const hcd_small_group group_;  // without its areas, which end with the call of the entry
  const uint64_t count_;
  uint64_t *const out_, *const in_;
  std::vector<uint64_t*> areas_;
};

inline hcd_api small_table() {
  hcd_api api = sharing::table();
  api.all_reduce_small = [](int, const hcd_small_group* group, hcd_ref out, hcd_ref in,
                            uint64_t count, hcd_type, hcd_op, double, double, hcd_stream stream) {
    return fake_device::in_order(stream, SmallKernel(*group, out, in, count));
  };
  api.mem_free = [](int, void* base) { return ++freed, fake_device::free(base), int{HCD_OK}; };
  return api;
}

}  // namespace hccl_like::on_streams
