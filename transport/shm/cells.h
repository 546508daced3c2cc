#pragma once
// Memory that goes to and fro between two processes with what is written into it.
//
// What a core has read it can write again at once; what its peer has read last it has to get back line by line, which takes two to
// four times as long where cores share a cache and ten times between dies. So a long part of what is written into a ring may lie in a
// cell instead: it has its place in the order of the ring's bytes, and a record beside the ring's index tells which cell holds it. Whoever
// has read it may write the cell next. Where messages go both ways, as in an exchange, a few cells that stay in the second-level caches
// carry them all; where they go one way the writer soon has no cell left and uses the ring.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hccl_like {

inline constexpr uint32_t kCells = 4;  // of a pair of processes; half of them begin at each side
inline constexpr size_t kCellBytes = 64 << 10;
inline constexpr size_t kLeastInCell = 4 << 10;  // shorter parts lie in the ring

// Which of a ring's bytes lie in a cell.
struct CellRecord {
  uint64_t begin = 0;  // in bytes since the beginning of the ring
  uint32_t bytes = 0;
  uint32_t cell = 0;
  uint64_t end() const { return begin + bytes; }
};

// Records of one ring, in shared memory, zeros at first. One side writes, the other reads. The reader may see the count of records before
// the index of the ring that covers them, so the count publishes the records itself.
class CellRecords {
 public:
  // The `number`th, counted from 0. There are never more than kCells unread ones: each has a cell of its own.
  void write(uint32_t number, const CellRecord& record) {
    Slot& slot = slots_[number % kCells];
    slot.begin.store(record.begin, std::memory_order_relaxed);
    slot.what.store(uint64_t{record.cell} << 32 | record.bytes, std::memory_order_relaxed);
    written_.store(number + 1, std::memory_order_release);
  }
  uint32_t written() const { return written_.load(std::memory_order_acquire); }
  // `number` is less than what written() has returned.
  CellRecord read(uint32_t number) const {
    const Slot& slot = slots_[number % kCells];
    const uint64_t what = slot.what.load(std::memory_order_relaxed);
    return {.begin = slot.begin.load(std::memory_order_relaxed),
            .bytes = static_cast<uint32_t>(what),
            .cell = static_cast<uint32_t>(what >> 32)};
  }

 private:
  struct Slot {
    std::atomic<uint64_t> begin{0};
    std::atomic<uint64_t> what{0};
  };
  std::atomic<uint32_t> written_{0};
  std::array<Slot, kCells> slots_;
};

// The cells that this side may write.
class CellDeck {
 public:
  struct Cell {
    uint32_t number = 0;
    // What of it its last message took: more may lie in the peer's caches still.
    size_t hot = 0;
    bool made = true;  // its memory
  };

  explicit CellDeck(int side) {
    for (uint32_t i = 0; i < kCells / 2; ++i)
      cells_[held_++] = {.number = static_cast<uint32_t>(side) * kCells / 2 + i, .made = false};
  }

  // One for a part of so many bytes: not one much more of which would stay behind. Of those that are alike the one that came last.
  std::optional<Cell> take(size_t bytes) {
    size_t best = held_;
    for (size_t i = 0; i < held_; ++i)
      if (cells_[i].hot * 3 <= bytes * 4 && (best == held_ || cells_[i].hot >= cells_[best].hot))
        best = i;
    if (best == held_) return std::nullopt;
    const Cell cell = cells_[best];
    for (--held_; best < held_; ++best) cells_[best] = cells_[best + 1];
    return cell;
  }
  // False if it is here already: then the peer told nonsense.
  bool put(const Cell& cell) {
    for (size_t i = 0; i < held_; ++i)
      if (cells_[i].number == cell.number) return false;
    cells_[held_++] = cell;
    return true;
  }

 private:
  std::array<Cell, kCells> cells_;  // in the order in which they came
  size_t held_ = 0;
};

}  // namespace hccl_like
