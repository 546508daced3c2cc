#pragma once
// The kernel of an all-reduction of little data by ranks that reach each other's memory.
//
// A rank's area (hcd_small_group): how many blocks of this call have ended; whether a call of
// this rank has ended early; the number of calls of each block. Then flags, by which the other
// ranks tell that their payload is in their areas, and the payload. Flags and payload are there
// twice, for calls of odd and of even numbers: a rank makes the call after the next one only when
// all others have begun the next, so have read all payloads of this one. Blocks work alone: each
// makes the same part of the payload in all calls, and has flags of its own.
#ifndef __CUDA_ARCH__
#include <sched.h>
#endif

#include "device/cuda/kernels.h"

namespace hccl_like::cuda {

struct SmallHead {
  unsigned long long ended_blocks;
  uint64_t stopped;
  uint64_t unused[6];
  uint64_t calls[HCD_SMALL_BYTES / kSmallPart];
};
struct SmallFlag {
  uint64_t fingerprint, number;
};
constexpr unsigned kSmallFlagsAt = 1024, kSmallBlocks = HCD_SMALL_BYTES / kSmallPart;
static_assert(sizeof(SmallHead) <= kSmallFlagsAt);
static_assert(2 * kSmallBlocks * sizeof(SmallFlag) == HCD_SMALL_HEAD(1) - HCD_SMALL_HEAD(0));
static_assert(SmallRanks::kMost == HCD_SMALL_RANKS);

// Memory that other devices and the host access at the same time (PTX ISA, memory consistency
// model). On the host a block has one thread.
__device__ inline uint64_t load_acquire(const uint64_t* from) {
#ifdef __CUDA_ARCH__
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
#else
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}
__device__ inline void store_release(uint64_t* to, uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
#else
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}
// Returns the value before.
__device__ inline unsigned long long add_one(unsigned long long* to) {
#ifdef __CUDA_ARCH__
  __threadfence_system();
  return atomicAdd(to, 1ull);
#else
  return __atomic_fetch_add(to, 1, __ATOMIC_ACQ_REL);
#endif
}
// Waits for all threads of the block. Whether `one` is true in any of them.
__device__ inline bool any_of_block(bool one) {
#ifdef __CUDA_ARCH__
  return __syncthreads_or(one) != 0;
#else
  return one;
#endif
}
__device__ inline void let_others_run() {
#ifndef __CUDA_ARCH__
  sched_yield();
#endif
}

// The payloads of all ranks from an offset on.
struct Payloads {
  const SmallRanks& ranks;
  uint64_t offset;
};
__device__ inline const void* source(const Payloads& in, unsigned k) {
  return in.ranks.areas[k] + in.offset;
}

// `to` is aligned to 16 bytes.
template <class T>
__device__ void copy_part(T* to, const T* from, uint64_t count, unsigned thread, unsigned threads) {
  constexpr uint64_t kPack = sizeof(uint4) / sizeof(T);
  const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(uint4) == 0;
  const uint64_t packs = aligned ? count / kPack : 0;
  for (uint64_t i = thread; i < packs; i += threads)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (uint64_t i = packs * kPack + thread; i < count; i += threads) to[i] = from[i];
}

// All bits set is a NaN in every floating-point type.
template <class T>
__device__ void spoil(T* out, uint64_t count, unsigned thread, unsigned threads) {
  for (uint64_t i = thread; i < count * sizeof(T); i += threads)
    reinterpret_cast<unsigned char*>(out)[i] = std::is_same_v<T, bool> ? 1 : 0xff;
}

// One block's part of one call.
struct SmallBlock {
  const SmallRanks& ranks;
  unsigned block, thread, threads;
  uint64_t number;  // of the call

  __device__ SmallHead& head() const {
    return *reinterpret_cast<SmallHead*>(ranks.areas[ranks.rank]);
  }
  __device__ SmallFlag& flag(unsigned of, unsigned from) const {
    const auto flags = reinterpret_cast<SmallFlag*>(ranks.areas[of] + kSmallFlagsAt);
    return flags[(number % 2 * kSmallBlocks + block) * ranks.ranks + from];
  }
  __device__ uint64_t payload_at() const {
    return HCD_SMALL_HEAD(ranks.ranks) + number % 2 * ranks.payload + uint64_t{block} * kSmallPart;
  }

  __device__ void tell() const {
    for (unsigned peer = thread; peer < ranks.ranks; peer += threads) {
      SmallFlag& there = flag(peer, ranks.rank);
      there.fingerprint = ranks.fingerprint;
      store_release(&there.number, number);
    }
  }

  __device__ bool fits(const SmallFlag& flag) const {
    return load_acquire(&flag.number) >= number && flag.fingerprint == ranks.fingerprint;
  }

  // Whether the call comes to nothing.
  __device__ bool await() const {
    constexpr unsigned kBetweenLooks = 256;  // a look at the host's word takes longer
    for (unsigned peer = thread; peer < ranks.ranks; peer += threads) {
      const SmallFlag& here = flag(ranks.rank, peer);
      for (unsigned polls = 1; !fits(here); ++polls) {
        if (polls % kBetweenLooks == 0 && load_acquire(ranks.stop) != 0) {
          head().stopped = 1;
          return true;
        }
        let_others_run();
      }
    }
    return false;
  }

  __device__ void end(unsigned blocks) const {
    head().calls[block] = number;
    if (add_one(&head().ended_blocks) + 1 < blocks) return;
    head().ended_blocks = 0;
    if (load_acquire(&head().stopped) == 0)  // written by other blocks
      store_release(ranks.completed, load_acquire(&head().calls[0]));
    store_release(ranks.state, 0);
  }
};

template <class T, class W>
__device__ void small_part(void* out, const void* in, uint64_t count, int op, double scale,
                           double result_scale, const SmallRanks& ranks, unsigned block,
                           unsigned blocks, unsigned thread, unsigned threads) {
  constexpr uint64_t kMost = kSmallPart / sizeof(T);
  const uint64_t begin = block * kMost, left = count > begin ? count - begin : 0;
  const uint64_t size = left < kMost ? left : kMost;
  SmallBlock one{ranks, block, thread, threads, 0};
  one.number = one.head().calls[block] + 1;
  if (block == 0 && thread == 0) store_release(ranks.state, 1);
  const uint64_t at = one.payload_at();
  copy_part(reinterpret_cast<T*>(ranks.areas[ranks.rank] + at), static_cast<const T*>(in) + begin,
            size, thread, threads);
  any_of_block(false);
  one.tell();
  T* const to = static_cast<T*>(out) + begin;
  if (!any_of_block(one.await()))
    reduce_part<T, W>(to, Payloads{ranks, at}, ranks.ranks, size, op, scale, result_scale, thread,
                      threads);
  else
    spoil(to, size, thread, threads);
  any_of_block(false);
  if (thread == 0) one.end(blocks);
}

}  // namespace hccl_like::cuda
