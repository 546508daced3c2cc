#pragma once
// What the two ends of a link share about one long message whose memory both can reach.
//
// The message is cut into blocks of one size. The receiver takes them from the front and copies
// them out of the sender's memory, the sender takes them from the back and copies them into the
// receiver's, until they meet: whoever has the time does the work. A block is taken by changing
// `claims`, and counted when it is copied.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/machine/fence.h"

namespace hccl_like {

// Lies in shared memory; starts out as zeros. Everything that is read from it is checked before it
// is used.
struct RendezvousSlot {
  // front : 24 | back : 24 | flags : 16
  alignas(64) std::atomic<uint64_t> claims;
  std::atomic<uint32_t> sender_done;  // blocks that the sender has copied
  alignas(64) std::atomic<uint32_t> receiver_done;
  std::atomic<uint32_t> receiver_left;  // the receiver will not look at this slot any more
};
static_assert(sizeof(RendezvousSlot) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

enum class End : uint8_t { kSender, kReceiver };

// A block of a message, in bytes.
struct Block {
  size_t begin = 0;
  size_t bytes = 0;
};

// How a message of a length is cut. Both ends compute the same.
class Blocks {
 public:
  explicit Blocks(size_t message) : message_(message) {
    const size_t share = std::bit_ceil(message / kParts);
    block_ = std::clamp(share, kSmallest, kLargest);
  }
  uint32_t count() const { return static_cast<uint32_t>((message_ + block_ - 1) / block_); }
  // The `number`-th from an end's side.
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

// One end's view of a slot.
class Claims {
 public:
  Claims(RendezvousSlot& slot, End end) : slot_(&slot), end_(end) {}

  // The number of the block taken, counted from this end's side; nothing if all are taken or the
  // message was given up.
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
  // The block that was taken is copied.
  void count() {
    std::atomic<uint32_t>& done = this->done(end_);
    done.store(done.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // It could not be copied, or the message was given up meanwhile, and it is free again.
  void put_back() {
    slot_->claims.fetch_sub(uint64_t{1} << shift(end_), std::memory_order_acq_rel);
  }
  // Whether the message was given up. Asked after a block was copied: its memory may have been
  // somebody else's by then.
  bool closed() const {
    acquire_fence();
    return (slot_->claims.load(std::memory_order_acquire) & kClosed) != 0;
  }
  bool complete(uint32_t blocks) const {
    return done(end_).load(std::memory_order_relaxed) +
               done(other()).load(std::memory_order_acquire) ==
           blocks;
  }

  // No block is taken any more. The other end may be at work on one: see other_works(). Whoever
  // copies what is written to the memory after this sees closed() when it asks.
  void close() {
    slot_->claims.fetch_or(kClosed, std::memory_order_acq_rel);
    full_fence();
  }
  bool other_works() const {
    return taken(slot_->claims.load(std::memory_order_acquire), other()) !=
           done(other()).load(std::memory_order_acquire);
  }
  // This end cannot reach the other's memory.
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
