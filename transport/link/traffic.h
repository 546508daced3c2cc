#pragma once
// Counts the messages of a Link.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/counters/counter_layout.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {

// The link's driver counts. Nothing is counted before count_in().
class Traffic {
 public:
  using Peer = counter_layout::Peer;

  // Once, on any thread. `peer` outlives the link.
  void count_in(Peer& peer) noexcept {
    std::atomic_ref(peer_).store(&peer);
    peer.transport.store(std::atomic_ref(transport_).load());
  }
  // Null before count_in(). Any thread.
  Peer* counted_in() const noexcept {
    return std::atomic_ref(peer_).load(std::memory_order_relaxed);
  }

  void connected(std::string_view transport) noexcept {
    uint64_t name = 0;
    for (size_t i = 0; i < std::min(transport.size(), sizeof name); ++i)
      name |= uint64_t{static_cast<uint8_t>(transport[i])} << (8 * i);
    std::atomic_ref(transport_).store(name);
    if (Peer* const peer = std::atomic_ref(peer_).load()) peer->transport.store(name);
  }
  void sent(uint64_t bytes) noexcept {
    if (Peer* const peer = counted_in()) add(peer->sent, peer->sent_bytes, bytes);
  }
  void received(uint64_t bytes) noexcept {
    if (Peer* const peer = counted_in()) add(peer->received, peer->received_bytes, bytes);
  }

  void rails(uint32_t reconnected, uint32_t down) noexcept {
    Peer* const peer = counted_in();
    if (peer == nullptr) return;
    peer->reconnected.fetch_add(reconnected);
    peer->rails_down.store(down);
  }
  // Counts the wire's cards that fail. The wire must not outlive this object. A wire and its remote
  // memory use the same cards, so the larger number of the two is down.
  void follow_rails(const WireExtensions& extensions) {
    RemoteMemory* const memory = extensions.remote_memory;
    if (RailsChanged* const changed = extensions.rails_changed)
      *changed = [this](uint32_t replaced, uint32_t down) {
        down_[0] = down;
        rails(replaced, std::ranges::max(down_));
      };
    if (RailsChanged* const changed = memory != nullptr ? memory->rails_changed() : nullptr)
      *changed = [this](uint32_t, uint32_t down) {
        down_[1] = down;
        rails(0, std::ranges::max(down_));
      };
  }
  // A call waited for the peer. Any thread.
  void waited(std::chrono::nanoseconds time) noexcept {
    Peer* const peer = counted_in();
    if (peer != nullptr && time.count() > 0)
      peer->waited.fetch_add(static_cast<uint64_t>(time.count()), std::memory_order_relaxed);
  }

 private:
  // One thread at a time writes them.
  static void add(counter_layout::Counter& messages, counter_layout::Counter& sum,
                  uint64_t bytes) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    messages.store(messages.load(kRelaxed) + 1, kRelaxed);
    sum.store(sum.load(kRelaxed) + bytes, kRelaxed);
  }

  // Not std::atomic, which model checks explore (tests/model/).
  mutable Peer* peer_ = nullptr;
  uint64_t transport_ = 0;
  std::array<uint32_t, 2> down_{};  // cards, as the wire and its remote memory tell
};

// Time in which no call can go on, by the peers that the calls wait for. Used by one thread at a
// time. If calls wait for three peers at once, the time counts for all three.
class Waits {
 public:
  // Counts the time since the look before it. Follow with await() for each peer awaited now.
  void look() {
    const auto now = std::chrono::steady_clock::now();
    for (Traffic::Peer* const peer : peers_)
      peer->waited.fetch_add(static_cast<uint64_t>((now - since_) / std::chrono::nanoseconds(1)),
                             std::memory_order_relaxed);
    since_ = now;
    peers_.clear();
  }
  void await(const Traffic& traffic) {
    Traffic::Peer* const peer = traffic.counted_in();
    if (peer != nullptr && std::ranges::count(peers_, peer) == 0) peers_.push_back(peer);
  }
  // A call went on. The time since the last look is not counted.
  void end() noexcept { peers_.clear(); }

 private:
  std::chrono::steady_clock::time_point since_{};
  std::vector<Traffic::Peer*> peers_;  // outlive their links
};

}  // namespace hccl_like
