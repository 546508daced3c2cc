#include "collectives/board/board_stage.h"

#include <algorithm>

namespace hccl_like {

void BoardStage::begin(const BoardCall& call, bool carries, bool shown, size_t bytes) {
  call_ = &call;
  carries_ = carries;
  bytes_ = bytes;
  phase_ = Phase::kOpening;
  watch_.begin(call, /*everybody=*/!carries);
  if (shown) phase_ = Phase::kReading;
}

void BoardStage::end() {
  if (phase_ == Phase::kReading) call_->board->withdraw(call_->number);
  if (phase_ == Phase::kFinished || phase_ == Phase::kWatching) call_->board->done(call_->number);
  phase_ = Phase::kOff;
}

bool BoardStage::advance() {
  const Phase before = phase_;
  if (phase_ == Phase::kOpening) {
    const Board::State state = call_->board->open();
    if (state == Board::State::kClosed) phase_ = Phase::kOff;
    if (state == Board::State::kOpen) phase_ = Phase::kWindow;
  }
  if (phase_ == Phase::kWindow && call_->board->writable(call_->number)) {
    if (carries_)
      call_->show();
    else
      call_->show_fingerprint(bytes_);
    phase_ = carries_ ? Phase::kReading : Phase::kWatching;
  }
  bool seen = false;
  if ((phase_ == Phase::kReading || phase_ == Phase::kWatching) && !watch_.mismatch())
    seen = !watch_.complete() && watch_.look(*call_);
  if (phase_ == Phase::kReading && watch_.complete()) {
    call_->finish();
    phase_ = Phase::kFinished;
  }
  return seen || phase_ != before;
}

std::vector<int> BoardStage::waiting_for() const {
  return phase_ == Phase::kWindow ? call_->board->behind(call_->number) : watch_.missing();
}

bool BoardStage::could_advance() const {
  if (phase_ == Phase::kOff) return false;
  Board& board = *call_->board;
  switch (phase_) {
    case Phase::kOpening:
      return board.open() != Board::State::kOpening;
    case Phase::kWindow:
      return board.writable(call_->number);
    case Phase::kReading:
    case Phase::kWatching:
      return std::ranges::any_of(
          watch_.missing(), [&](int rank) { return board.line(rank, call_->number) != nullptr; });
    case Phase::kOff:
    case Phase::kFinished:
      return false;
  }
  return false;
}

}  // namespace hccl_like
