#pragma once
// Shared state of one long message whose memory both ends can access.
//
// The message is divided into blocks of equal size. The receiver copies blocks from the front
// (reads of the sender's memory), the sender from the back (writes to the receiver's), until they
// meet. An end claims a block in `claims` and increments its done counter after the copy.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/machine/fence.h"

namespace hccl_like {

// In shared memory, initially zero. All values read from it are validated before use.
struct RendezvousSlot {
  // front : 24 | back : 24 | flags : 16
  alignas(64) std::atomic<uint64_t> claims;
  std::atomic<uint32_t> sender_done;  // blocks that the sender has copied
  alignas(64) std::atomic<uint32_t> receiver_done;
  std::atomic<uint32_t> receiver_left;  // the receiver will not access this slot again
};
static_assert(sizeof(RendezvousSlot) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

enum class End : uint8_t { kSender, kReceiver };

struct Block {
  size_t begin = 0;
  size_t bytes = 0;
};

// Division of a message into blocks. Both ends compute the same.
class Blocks {
 public:
  explicit Blocks(size_t message) : message_(message) {
    const size_t share = std::bit_ceil(message / kParts);
    block_ = std::clamp(share, kSmallest, kLargest);
  }
  uint32_t count() const { return static_cast<uint32_t>((message_ + block_ - 1) / block_); }
  // The `number`-th block, counted from the given end.
  Block from(End end, uint32_t number) const {
    const size_t index = end == End::kReceiver ? number : count() - 1 - number;
    const size_t begin = index * block_;
    return {begin, std::min(block_, message_ - begin)};
  }

  static constexpr size_t kSmallest = 64 << 10;
  static constexpr size_t kLargest = 256 << 10;
  static constexpr uint32_t kMost = (1u << 24) - 1;

 private:
  static constexpr size_t kParts = 8;
  size_t message_;
  size_t block_;
};

class Claims {
 public:
  Claims(RendezvousSlot& slot, End end) : slot_(&slot), end_(end) {}

  // Claims a block and returns its number, from this end's side. Nothing if none is left or
  // closed().
  std::optional<uint32_t> take(uint32_t blocks) {
    uint64_t now = slot_->claims.load(std::memory_order_acquire);
    while (is_open(now, blocks)) {
      const uint64_t next = now + (uint64_t{1} << shift(end_));
      if (slot_->claims.compare_exchange_weak(now, next, std::memory_order_acq_rel))
        return taken(now, end_);
    }
    return std::nullopt;
  }
  bool may_take(uint32_t blocks) const {
    return is_open(slot_->claims.load(std::memory_order_acquire), blocks);
  }
  void count() {
    std::atomic<uint32_t>& done = this->done(end_);
    done.store(done.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Releases a claimed block that was not copied, or whose message was given up.
  void put_back() {
    slot_->claims.fetch_sub(uint64_t{1} << shift(end_), std::memory_order_acq_rel);
  }
  // Whether the message was given up. Check after each copy: the memory may have been reused
  // before.
  bool closed() const {
    acquire_fence();
    return (slot_->claims.load(std::memory_order_acquire) & kClosed) != 0;
  }
  bool complete(uint32_t blocks) const {
    return done(end_).load(std::memory_order_relaxed) +
               done(other()).load(std::memory_order_acquire) ==
           blocks;
  }

  // Prevents further claims. The other end may still copy a block: see other_works(). An end that
  // copies data stored after close() sees closed() after its copy.
  void close() {
    slot_->claims.fetch_or(kClosed, std::memory_order_acq_rel);
    full_fence();
  }
  bool other_works() const {
    return taken(slot_->claims.load(std::memory_order_acquire), other()) !=
           done(other()).load(std::memory_order_acquire);
  }
  // This end cannot access the other's memory.
  void refuse() { slot_->claims.fetch_or(refusal(end_), std::memory_order_acq_rel); }
  bool other_refuses() const {
    return (slot_->claims.load(std::memory_order_acquire) & refusal(other())) != 0;
  }

 private:
  static constexpr uint64_t kClosed = uint64_t{1} << 48;
  static uint64_t refusal(End end) { return kClosed << (end == End::kSender ? 1 : 2); }
  static int shift(End end) { return end == End::kReceiver ? 0 : 24; }
  static uint32_t taken(uint64_t claims, End end) {
    return static_cast<uint32_t>(claims >> shift(end)) & Blocks::kMost;
  }
  static bool is_open(uint64_t claims, uint32_t blocks) {
    return (claims & kClosed) == 0 &&
           taken(claims, End::kReceiver) + taken(claims, End::kSender) < blocks;
  }
  End other() const { return end_ == End::kSender ? End::kReceiver : End::kSender; }
  std::atomic<uint32_t>& done(End end) const {
    return end == End::kSender ? slot_->sender_done : slot_->receiver_done;
  }

  RendezvousSlot* slot_;
  End end_;
};

}  // namespace hccl_like
