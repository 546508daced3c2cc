// Direct calls of two ranks that give each other alike: what they put for each other lies in cells that go to and fro, as far as there
// are any, and in their lanes otherwise. Nothing is agreed: each tells beside its counters where a lap lies.
#include <algorithm>

#include "collectives/direct/direct_run.h"

namespace hccl_like {

PairCells* DirectRun::cells() const {
  return ranks_ == 2 ? call_->board->link(1 - rank_)->pair_cells() : nullptr;
}

// What is more than the caches hold goes by lanes: between dies a line comes sooner from memory than out of another core's cache.
bool DirectRun::uses_cells() const { return exchanges_ && !past_caches_; }

// Where this rank's input of a lap goes; told with the lap.
std::byte* DirectRun::place_for(uint32_t lap) {
  own_cell_.reset();
  if (exchanges_) {
    PairCells* const cells = uses_cells() ? this->cells() : nullptr;
    if (cells != nullptr) own_cell_ = cells->take();
    // Whoever sees this sees that the line of an earlier call was taken back: keep().
    lane_->cells[lap % Lane::kSlots].store(static_cast<uint8_t>(own_cell_ ? *own_cell_ + 1 : 0),
                                           std::memory_order_release);
  }
  return own_cell_ ? cells()->data(*own_cell_) : slot(lap);
}

// The cell in which the other rank has put a lap, if it has.
std::optional<uint32_t> DirectRun::cell_of(uint32_t lap) const {
  if (!exchanges_) return std::nullopt;
  const uint32_t told =
      peer(1 - rank_).lane->cells[lap % Lane::kSlots].load(std::memory_order_acquire);
  // Whoever is not there yet was told of none, so the rest is a peer's nonsense.
  if (told == 0 || told > PairCells::kCount || cells() == nullptr) return std::nullopt;
  return told - 1;
}

void DirectRun::find_input(uint32_t lap) {
  given_cell_.reset();
  if (exchanges_ && roles_.reads_lane_of(1 - rank_)) given_cell_ = cell_of(lap);
  if (given_cell_) cells()->receive(*given_cell_);
}

// The input in it is needed no more: it is this rank's cell, unless the other gave up. Then the lane that named it may serve another call
// by now.
void DirectRun::keep(std::optional<uint32_t> cell) const {
  if (cell && still_shown(1 - rank_)) cells()->keep(*cell);
}

// What was put before both knew that it goes another way. While the other rank waits for this one its lane serves no other call.
void DirectRun::keep_unread_cells() const {
  if (!exchanges_ || roles_.reads_lane_of(1 - rank_)) return;
  const uint64_t put = std::min<uint64_t>(told(1 - rank_, &Lane::put), Lane::kSlots);
  for (uint32_t lap = 0; lap < put; ++lap) keep(cell_of(lap));
}

// What this rank has put for one that will not read it. It is told of by nobody else, so the cells are this rank's as before.
void DirectRun::take_back_cells() const {
  if (!uses_cells() || cells() == nullptr) return;
  for (uint32_t lap = 0; lap < put_; ++lap)
    if (const uint32_t told = lane_->cells[lap % Lane::kSlots].load(std::memory_order_relaxed))
      cells()->keep(told - 1);
}

// What this rank is to put next, if so much of it lies in one piece.
const std::byte* DirectRun::next_input(size_t bytes) const {
  if (!exchanges_ || !roles_.puts() || put_ >= shape_.laps) return nullptr;
  const Pieces next = own_input(1 - rank_, taken(1 - rank_, shape_.lap(put_)));
  return next.size() == 1 && next[0].bytes >= bytes ? next[0].data : nullptr;
}

// The next lap had better lie in the cell of one that the other rank puts before it waits for this one.
bool DirectRun::awaits_cell() const {
  if (!uses_cells() || put_ <= worked_) return false;
  const PairCells* const cells = this->cells();
  return cells != nullptr && cells->gave_all();
}

}  // namespace hccl_like
