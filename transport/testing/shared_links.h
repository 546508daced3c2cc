#pragma once
// Test fixture: memory that peers map, and two links over a shm wire for messages of that memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "core/base/deadline.h"
#include "device/host/host_api.h"
#include "device/host/host_ipc.h"
#include "device/host/shared_pool.h"
#include "transport/link/link.h"
#include "transport/same_host/peer_memory.h"
#include "transport/testing/shm_pair.h"

namespace hccl_like {

inline const Device& host_device() {
  static const Device device(host_api());
  return device;
}

// Memory that peers map, with one guard byte at each end.
class Shared {
 public:
  explicit Shared(size_t bytes, std::byte fill = std::byte{0xee})
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(SharedPool::of_process().allocate(bytes + 2))) {
    std::memset(memory_, static_cast<int>(fill), bytes + 2);
    range_ = *shared_range(data(), bytes);
  }
  ~Shared() { SharedPool::of_process().free(memory_); }
  Shared(const Shared&) = delete;

  std::byte* data() const { return memory_ + 1; }
  size_t size() const { return bytes_; }
  void fill(uint64_t begin) {
    const auto bytes = stream_bytes(begin, bytes_);
    std::copy(bytes.begin(), bytes.end(), data());
  }
  bool holds(uint64_t begin) const {
    const auto bytes = stream_bytes(begin, bytes_);
    return std::equal(bytes.begin(), bytes.end(), data()) && memory_[0] == std::byte{0xee} &&
           memory_[bytes_ + 1] == std::byte{0xee};
  }
  bool holds_only(std::byte value) const {
    return std::all_of(data(), data() + bytes_, [&](std::byte byte) { return byte == value; });
  }
  ExportedRange& range() { return range_; }

 private:
  size_t bytes_;
  std::byte* memory_;
  ExportedRange range_;
};

class SharedLinks : public testing::Test {
 protected:
  explicit SharedLinks(LinkOptions options = {}) : options_(options) { connect(); }

  void connect() {
    links_[0].reset(), links_[1].reset();
    wires_ = make_shm_pair(64 << 10);
    for (size_t end : {size_t{0}, size_t{1}})
      links_[end] = std::make_unique<Link>(std::move(wires_.ends[end]), options_);
  }
  Link& a() { return *links_[0]; }
  Link& b() { return *links_[1]; }

  template <class OneEnd>
  OneEnd& post(size_t end, OneEnd& message, Pieces& pieces, uint32_t sequence, Shared& memory,
               bool shown) {
    pieces.add(memory.data(), memory.size());
    message.tag = {.communicator = 7, .sequence = sequence};
    message.bytes = memory.size();
    message.pending = &pending_;
    if (shown)
      message.place = {.range = &memory.range(), .device = &host_device(), .memory = &memory_[end]};
    ++pending_;
    links_[end]->post(message);
    return message;
  }
  Send& send(size_t end, uint32_t sequence, Shared& memory, bool shown = true) {
    Send& message = sends_.emplace_back();
    return post(end, message, message.from, sequence, memory, shown);
  }
  Recv& recv(size_t end, uint32_t sequence, Shared& memory, bool shown = true) {
    Recv& message = recvs_.emplace_back();
    return post(end, message, message.into, sequence, memory, shown);
  }
  void run() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (pending_ > 0) {
      a().progress();
      b().progress();
      ASSERT_FALSE(deadline.expired()) << "nothing happens any more";
    }
  }
  // Drives one end until it makes no progress.
  static void exhaust(Link& link) {
    while (link.progress()) {
    }
  }

  // Gives up a message of `bytes` on either end after each number of steps. The other end must not
  // touch the memory afterwards. `then` runs when both ends have noticed.
  template <class PostBoth, class Then>
  void give_up_after_every_step(size_t bytes, PostBoth post_both, Then then) {
    for (const size_t quitter : {size_t{0}, size_t{1}})
      for (int steps = 0; steps < 12; ++steps) {
        connect();
        Shared from(bytes), into(bytes);
        from.fill(1);
        post_both(from, into, steps);
        for (int i = 0; i < steps; ++i) links_[i % 2]->progress();
        links_[quitter]->cancel(7);
        Shared& released = quitter == 0 ? from : into;
        std::memset(released.data(), 0x55, released.size());
        exhaust(*links_[1 - quitter]);
        exhaust(*links_[quitter]);
        EXPECT_TRUE(released.holds_only(std::byte{0x55})) << "after " << steps;
        then();
        links_[1 - quitter]->cancel(7);
        pending_ = 0;
      }
  }

  const LinkOptions options_;
  WirePair wires_;
  PeerMemory memory_[2];
  std::unique_ptr<Link> links_[2];
  std::deque<Send> sends_;
  std::deque<Recv> recvs_;
  uint32_t pending_ = 0;
};

}  // namespace hccl_like
