#pragma once
// 64-bit words in host memory, for which the devices of a host's ranks wait.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/engine/communicator.h"
#include "device/device.h"
#include "transport/same_host/peer_memory.h"

namespace hccl_like {

// A block of words of each rank of a group. A rank's device waits for the words of its own block;
// the devices of peers write them. A cache line for each word: ranks write them at the same time.
// One thread at a time calls reach().
class SharedWords {
 public:
  using Word = volatile uint64_t;
  static constexpr size_t kWordBytes = 64;
  static constexpr size_t kGrain = 64;  // `count` is a multiple, so that a block has whole pages

  // All words are 0. `host`: of the host's own memory. Throws kDevice or kSystem.
  SharedWords(const Communicator& communicator, const Device& device, int index, const Device& host,
              size_t count);
  // Keeps the memory if the group has failed: peers may write it.
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  Word* own(size_t number) const { return at(begin_, number); }
  // Null for this rank and before reach().
  Word* of(int peer, size_t number) const {
    std::byte* const begin = peers_[static_cast<size_t>(peer)];
    return begin == nullptr ? nullptr : at(begin, number);
  }
  // By which peers reach this block.
  const ExportedRange& shown() const { return shown_; }
  // Maps a peer's block of the same size, once. False if that cannot be.
  bool reach(int peer, const ExportedRange& block);
  // Ends all waits for the words [first, first + count) of this rank's block.
  void release(size_t first, size_t count) const;

 private:
  static Word* at(std::byte* begin, size_t number) {
    return reinterpret_cast<Word*>(begin + number * kWordBytes);
  }

  const Communicator& communicator_;
  const Device& device_;
  const int index_;
  const Device& host_;
  const size_t bytes_;
  std::byte* begin_ = nullptr;
  ExportedRange shown_;
  MappedRange registered_;  // with the device
  std::vector<std::byte*> peers_;
  std::vector<PeerMemory::Mapping> mappings_;
  std::vector<MappedRange> registrations_;
};

}  // namespace hccl_like
