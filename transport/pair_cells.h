#pragma once
// Cells of two processes of one host, for payloads that both give each other beside the wire.
//
// As with the cells of a wire (shm/cells.h), whoever has read one writes it next: its lines are in his caches then, and nothing has to
// be asked for. So between two ranks that exchange, a few of them that stay in the second-level caches carry everything, however far
// apart the cores are. Which cell holds what, its writer tells by other means (collectives/direct).
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hccl_like {

// One side's. Any thread.
class PairCells {
 public:
  static constexpr uint32_t kCount = 4;  // half of them begin at each side
  // Eight of half the size took 2 to 10 % longer from 1 MiB on: more laps to wait for.
  static constexpr size_t kBytes = 128 << 10;
  static constexpr size_t kAllBytes = kCount * kBytes;

  // `cells`: kAllBytes that both processes have mapped, whose memory is made when a cell is first written. `own` and `peers` tell
  // whether this side and the other one look for cells, in shared memory that was zeros.
  PairCells(int side, std::byte* cells, std::atomic<uint32_t>& own,
            const std::atomic<uint32_t>& peers);
  PairCells(const PairCells&) = delete;
  PairCells& operator=(const PairCells&) = delete;

  // From now on the peer may write into cells: everybody here who has to read them finds this object.
  void open() { own_.store(1, std::memory_order_release); }

  // A cell that this side may write, of those that it has the one that came last. Nothing if it has none, if the system has no
  // memory for it, or before the peer is open.
  std::optional<uint32_t> take();
  // Whether the peer is open and this side has none left to take.
  bool gave_all() const {
    return peers_.load(std::memory_order_relaxed) != 0 &&
           held_.load(std::memory_order_relaxed) == 0;
  }
  // What the peer wrote into a cell is needed no more: this side may write it. A cell that does not exist, or is here already, is
  // a peer's nonsense, and changes nothing.
  void keep(uint32_t number);
  // Of a cell that exists.
  std::byte* data(uint32_t number) const { return cells_ + number * kBytes; }

  // A thread of this process has written into a cell, before the peer is told; one is about to read what the peer wrote into it. What
  // happened here before then happened before what happens here now: the language does not know the way by the peer.
  void give(uint32_t number) { given_[number].store(true, std::memory_order_release); }
  void receive(uint32_t number) const { (void)given_[number].load(std::memory_order_acquire); }

 private:
  struct Cell {
    uint32_t number = 0;
    bool made = true;  // its memory
  };
  class Hold;

  std::byte* const cells_;
  std::atomic<uint32_t>& own_;
  const std::atomic<uint32_t>& peers_;
  std::atomic<bool> busy_{false};  // guards what follows, for a moment
  std::array<Cell, kCount> deck_;  // in the order in which they came
  std::atomic<size_t> held_{0};
  std::array<std::atomic<bool>, kCount> given_{};
};

}  // namespace hccl_like
