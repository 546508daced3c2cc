#include "collectives/same_host/same_host_stage.h"

#include <algorithm>
#include <utility>

namespace hccl_like {

void SameHostStage::begin(const BoardCall& call, CallPath path, bool shown,
                          std::unique_ptr<LargeCall> begun) {
  call_ = &call;
  way_ = path;
  phase_ = shown ? Phase::kReading : Phase::kOpening;
  watch_.begin(call);
  if (!begun) return;
  large_ = std::move(begun);
  large_->go_on(call);
  phase_ = large_->met() ? Phase::kMoving : Phase::kHandshake;
}

void SameHostStage::end() {
  switch (phase_) {
    case Phase::kReading:
    case Phase::kHandshake:
    case Phase::kMoving:
      // The call has failed; from here on this rank reads no slot of it.
      call_->board->withdraw(call_->number);
      if (large_) large_->end();
      call_->board->done(call_->number);
      break;
    case Phase::kFinished:
    case Phase::kWatching:
      call_->board->done(call_->number);
      if (large_) large_->end();
      break;
    case Phase::kOpening:
    case Phase::kWindow:
      // The call was not and will not be published.
      if (call_->board->is_open()) call_->board->done(call_->number);
      break;
    case Phase::kOff:
      break;
  }
  phase_ = Phase::kOff;
}

void SameHostStage::show() {
  switch (way_) {
    case CallPath::kMessages:
      call_->show_fingerprint();
      phase_ = Phase::kWatching;
      break;
    case CallPath::kBoard:
      call_->show();
      phase_ = Phase::kReading;
      break;
    case CallPath::kLarge:
      if (!large_) large_ = std::make_unique<LargeCall>();
      if (large_->begin(*call_)) {
        large_->show();
        phase_ = Phase::kHandshake;
      } else {
        LargeCall::show_no_staging(*call_);
        phase_ = Phase::kWatching;
      }
      break;
  }
  call_->board->ring();
}

bool SameHostStage::advance() {
  const Phase before = phase_;
  bool moved = false;
  if (phase_ == Phase::kOpening) {
    const Board::State state = call_->board->open();
    if (state == Board::State::kClosed) phase_ = Phase::kOff;
    if (state == Board::State::kOpen) phase_ = Phase::kWindow;
  }
  if (phase_ == Phase::kWindow && call_->board->writable(call_->number)) show();
  if ((phase_ == Phase::kReading || phase_ == Phase::kHandshake || phase_ == Phase::kWatching) &&
      !watch_.mismatch())
    moved = !watch_.complete() && watch_.look(*call_);
  if (phase_ == Phase::kReading && watch_.complete()) {
    call_->finish();
    phase_ = Phase::kFinished;
  }
  if (phase_ == Phase::kHandshake && watch_.complete()) {
    large_->meet();
    phase_ = large_->lacks_staging() ? Phase::kWatching : Phase::kMoving;
  }
  if (phase_ == Phase::kMoving) {
    const bool stepped = large_->advance();
    if (!stepped) large_->tell();
    moved |= stepped;
    if (large_->finished()) phase_ = Phase::kFinished;
  }
  return moved || phase_ != before;
}

std::vector<int> SameHostStage::waiting_for() const {
  if (phase_ == Phase::kWindow) return call_->board->behind(call_->number);
  return phase_ == Phase::kMoving ? large_->waiting_for() : watch_.missing();
}

bool SameHostStage::could_advance() const {
  if (phase_ == Phase::kOff) return false;
  Board& board = *call_->board;
  switch (phase_) {
    case Phase::kOpening:
      return board.open() != Board::State::kOpening;
    case Phase::kWindow:
      return board.writable(call_->number);
    case Phase::kReading:
    case Phase::kHandshake:
    case Phase::kWatching:
      return std::ranges::any_of(watch_.missing(), [&](int rank) {
        return board.call_slot(rank, call_->number) != nullptr;
      });
    case Phase::kMoving:
      return large_->could_advance();
    case Phase::kOff:
    case Phase::kFinished:
      return false;
  }
  return false;
}

}  // namespace hccl_like
