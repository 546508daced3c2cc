#include "transport/pair_cells.h"

#include <algorithm>
#include <thread>

#include "core/memory_file.h"

namespace hccl_like {

// To unlock a mutex would be to wait until other cores have given up the lines that were just written.
class PairCells::Hold {
 public:
  explicit Hold(PairCells& cells) : busy_(cells.busy_) {
    while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  ~Hold() { busy_.store(false, std::memory_order_release); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::atomic<bool>& busy_;
};

PairCells::PairCells(int side, std::byte* cells, std::atomic<uint32_t>& own,
                     const std::atomic<uint32_t>& peers)
    : cells_(cells), own_(own), peers_(peers), held_(kCount / 2) {
  for (uint32_t i = 0; i < kCount / 2; ++i)
    deck_[i] = {.number = static_cast<uint32_t>(side) * kCount / 2 + i, .made = false};
}

std::optional<uint32_t> PairCells::take() {
  if (peers_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const Hold hold(*this);
  const size_t held = held_.load(std::memory_order_relaxed);
  if (held == 0) return std::nullopt;
  const Cell cell = deck_[held - 1];
  held_.store(held - 1, std::memory_order_relaxed);
  // One less, then.
  if (!cell.made && !populate({data(cell.number), kBytes})) return std::nullopt;
  return cell.number;
}

void PairCells::keep(uint32_t number) {
  if (number >= kCount) return;
  const Hold hold(*this);
  const size_t held = held_.load(std::memory_order_relaxed);
  const auto here = deck_.begin() + static_cast<ptrdiff_t>(held);
  if (std::any_of(deck_.begin(), here, [&](const Cell& one) { return one.number == number; }))
    return;
  deck_[held] = {.number = number};
  held_.store(held + 1, std::memory_order_relaxed);
}

}  // namespace hccl_like
