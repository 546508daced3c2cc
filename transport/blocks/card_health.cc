#include "transport/blocks/card_health.h"

#include <algorithm>

namespace hccl_like {

void CardHealth::take_out(size_t card, Time now) {
  Card& one = cards_[card];
  if (one.out) return;
  one.out = true;
  one.pause = std::clamp(2 * one.pause, times_.first_retry, times_.last_retry);
  one.retry = now + one.pause;
  if (doubt_ && (doubt_->suspect == card || doubt_->witness == card)) doubt_.reset();
}

void CardHealth::suspect(size_t card, Time now) {
  if (doubt_ || !works(card)) return;
  doubt_ = Doubt{.suspect = card, .witness = card, .begun = now};
  for (size_t i = 0; i < cards_.size() && doubt_->witness == card; ++i) {
    const size_t other = next_witness_++ % cards_.size();
    if (works(other)) doubt_->witness = other;
  }
}

bool CardHealth::answered(size_t card, uint32_t number) {
  Card& one = cards_[card];
  if (number != one.pinged) return false;
  one.answered = number;
  return true;
}

CardHealth::Advice CardHealth::look(Time now) {
  Advice advice;
  for (size_t i = 0; i < cards_.size(); ++i) {
    Card& one = cards_[i];
    if (!one.out || now < one.retry) continue;
    one.pause = std::min(2 * one.pause, times_.last_retry);
    one.retry = now + one.pause;
    advice.ping.push_back(i);
  }
  if (!doubt_) return advice;
  if (!doubt_->pinged) {
    doubt_->pinged = true;
    advice.ping.push_back(doubt_->suspect);
    if (doubt_->witness != doubt_->suspect) advice.ping.push_back(doubt_->witness);
    return advice;
  }
  if (!doubt_->answered && cards_[doubt_->witness].answers()) doubt_->answered = now;
  if (cards_[doubt_->suspect].answers()) {
    doubt_.reset();
  } else if (doubt_->answered && now - *doubt_->answered > times_.answer) {
    advice.silent = doubt_->suspect;
    doubt_.reset();
  } else if (!doubt_->answered && now - doubt_->begun > 4 * times_.silence) {
    doubt_.reset();  // the next one asks another witness
  }
  return advice;
}

}  // namespace hccl_like
