#pragma once
// Counts the messages of a Link.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/counters/counter_layout.h"

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

  void reconnected(uint64_t times) noexcept {
    if (Peer* const peer = counted_in()) peer->reconnected.fetch_add(times);
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
};

}  // namespace hccl_like
