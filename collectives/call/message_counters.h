#pragma once
// Counts the messages to, or from, each peer on each channel.
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace hccl_like {

class MessageCounters {
 public:
  // From 0. The peer's last used channel needs no hash look-up.
  uint32_t& operator()(int peer, uint32_t channel) {
    const auto index = static_cast<size_t>(peer);
    if (index >= last_.size()) last_.resize(index + 1);
    Last& last = last_[index];
    if (last.counter == nullptr || last.channel != channel)
      last = {channel, &counters_[uint64_t{static_cast<uint32_t>(peer)} << 32 | channel]};
    return *last.counter;
  }

  // The messages of all channels, by peer; without peers that have none.
  std::map<int, uint64_t> by_peer() const {
    std::map<int, uint64_t> all;
    for (const auto& [key, count] : counters_)
      if (count > 0) all[static_cast<int>(key >> 32)] += count;
    return all;
  }

 private:
  struct Last {
    uint32_t channel = 0;
    uint32_t* counter = nullptr;
  };
  std::vector<Last> last_;  // by peer
  std::unordered_map<uint64_t, uint32_t> counters_;
};

}  // namespace hccl_like
