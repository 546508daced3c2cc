#include "transport/blocks/block_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr const char* kNonsense = "it sent what cannot be understood";

std::string named(const BlockPort& port, size_t index) {
  const std::string name = port.card();
  return "card " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace

BlockChannel::Card::Card(BlockChannel& whole, size_t number, std::unique_ptr<BlockPort> its,
                         size_t slots)
    : channel(whole), index(number), port(std::move(its)), uses(slots, 0) {
  for (size_t slot = slots; slot-- > 0;) free.push_back(slot);
  for (size_t slot = 0; slot < slots; ++slot) port->receive(slot);
}

void BlockChannel::Card::sent(size_t slot) {
  --in_flight;
  drop(slot);
}

size_t BlockChannel::Card::take_slot() {
  const size_t slot = free.back();
  free.pop_back();
  uses[slot] = 1;
  return slot;
}

void BlockChannel::Card::drop(size_t slot) {
  if (--uses[slot] == 0) free.push_back(slot);
}

BlockChannel::BlockChannel(std::vector<std::unique_ptr<BlockPort>> ports, BlockShape shape,
                           std::string title, const CardTimes& times)
    : shape_(shape),
      title_(std::move(title)),
      times_(times),
      health_(ports.size(), times),
      last_moved_(times.now()) {
  for (auto& port : ports)
    cards_.push_back(std::make_unique<Card>(*this, cards_.size(), std::move(port), shape_.slots()));
}

void BlockChannel::say_goodbye(Deadline deadline) {
  const auto over = [&] { return !ended_.empty() || deadline.expired(); };
  do progress();
  while (current().free.empty() && !over());
  if (over()) return;
  post(current(), current().take_slot(), Kind::kGoodbye, number_);
  while (!all_sent() && !over()) progress();
}

// The last slots are reserved for confirmations and the goodbye.
std::span<std::byte> BlockChannel::room() const {
  const Card& card = current();
  if (!ended_.empty() || unconfirmed_.size() >= shape_.blocks || sent_here_ < unconfirmed_.size() ||
      card.free.size() <= shape_.slots() - shape_.blocks)
    return {};
  return card.port->send_slot(card.free.back()).subspan(sizeof(Header));
}

void BlockChannel::send(size_t bytes) {
  Card& card = current();
  const size_t slot = card.take_slot();
  ++card.uses[slot];
  unconfirmed_.push_back({&card, slot, bytes, number_});
  ++sent_here_;
  post(card, slot, Kind::kBytes, number_++, bytes);
}

// The library's use of the slot is counted already.
void BlockChannel::post(Card& card, size_t slot, Kind kind, uint32_t number, size_t payload) {
  const Header header{static_cast<uint32_t>(payload), read_, kind, 0, epoch_, number};
  told_ = read_;
  std::memcpy(card.port->send_slot(slot).data(), &header, sizeof header);
  ++card.in_flight;
  card.port->send(slot, sizeof header + payload);
}

// Checks the header before its numbers become sizes.
void BlockChannel::arrived(Card& card, size_t slot) {
  Header header;
  const std::span<std::byte> memory = card.port->receive_slot(slot);
  std::memcpy(&header, memory.data(), sizeof header);
  heard_ = true;
  if (header.bytes > memory.size() - sizeof header || !confirm(header.confirmed))
    return end(kNonsense);
  if (static_cast<int16_t>(header.epoch - epoch_) > 0 && cards_.size() > 1) switch_to(header.epoch);
  if (!take(card, slot, header)) card.port->receive(slot);
}

// Whether the slot is in use afterwards.
bool BlockChannel::take(Card& card, size_t slot, const Header& header) {
  switch (header.kind) {
    case Kind::kBytes:
      if (header.bytes == 0) break;
      if (header.number != expected_) return false;
      ++expected_;
      arrivals_.push_back({card.index, slot, sizeof header, sizeof header + header.bytes});
      return true;
    case Kind::kConfirmation:
      return false;
    case Kind::kGoodbye:
      end("the peer closed the connection");
      return true;
    case Kind::kPing:  // the card may work again although its next trial is far
      if (!card.port->broken().empty()) card.port->mend();
      card.to_answer = header.number;
      return false;
    case Kind::kPong:
      if (header.bytes != sizeof expected_) break;
      hear_pong(card, slot, header);
      return false;
  }
  end(kNonsense);
  return true;
}

void BlockChannel::hear_pong(Card& card, size_t slot, const Header& header) {
  if (!health_.answered(card.index, header.number)) return;
  const size_t carries = current().index;
  if (!health_.works(card.index)) {
    health_.take_back(card.index);
    changed_ = true;
    log_warn("the " + title_ + ": " + named(*card.port, card.index) + " works again");
    // Blocks go over the first card that works.
    if (card.index < carries)
      switch_to(static_cast<uint16_t>(epoch_ + cards_.size() + card.index - carries));
  } else if (card.index == carries) {
    // Blocks arrive in order: those before the ping that are still expected are lost.
    uint32_t expected = 0;
    std::memcpy(&expected, card.port->receive_slot(slot).data() + sizeof header, sizeof expected);
    if (static_cast<int32_t>(card.sent_before_ping - expected) > 0)
      switch_to(static_cast<uint16_t>(epoch_ + cards_.size()));
  }
}

// A block that was late says less than another one before it.
bool BlockChannel::confirm(uint32_t confirmed) {
  const uint32_t before = number_ - static_cast<uint32_t>(unconfirmed_.size());
  const uint32_t more = confirmed - before;
  if (more > unconfirmed_.size()) return static_cast<int32_t>(more) < 0;
  for (uint32_t i = 0; i < more; ++i) {
    unconfirmed_.front().card->drop(unconfirmed_.front().slot);
    unconfirmed_.pop_front();
    moved_ = true;
  }
  sent_here_ -= std::min<size_t>(sent_here_, more);
  return true;
}

void BlockChannel::answer_and_confirm() {
  for (auto& card : cards_) {
    if (!card->to_answer || card->free.size() < 2) continue;
    const size_t slot = card->take_slot();
    std::memcpy(card->port->send_slot(slot).data() + sizeof(Header), &expected_, sizeof expected_);
    post(*card, slot, Kind::kPong, *std::exchange(card->to_answer, std::nullopt), sizeof expected_);
  }
  if (read_ - told_ >= shape_.blocks / 2 && current().free.size() >= 2)
    post(current(), current().take_slot(), Kind::kConfirmation, 0);
}

void BlockChannel::progress() {
  if (!ended_.empty()) return;
  const bool looks = ++turn_ >= times_.turns;
  if (looks) turn_ = 0;
  for (auto& card : cards_) {
    if (card.get() != &current() && !looks) continue;
    card->port->progress(*card);
    if (!ended_.empty()) return;
    if (!card->port->broken().empty()) take_out(card->index, card->port->broken());
    if (!ended_.empty()) return;
  }
  if (looks && (cards_.size() > 1 || outage_ || !unconfirmed_.empty())) watch();
  if (!ended_.empty()) return;
  if (sent_here_ < unconfirmed_.size()) send_again();
  answer_and_confirm();
  if (changed_) tell_rails();
}

void BlockChannel::tell_rails() {
  changed_ = false;
  uint32_t down = 0;
  for (size_t i = 0; i < cards_.size(); ++i) down += health_.works(i) ? 0 : 1;
  const uint32_t replaced = std::exchange(replaced_, 0);
  if (rails_changed_) rails_changed_(replaced, down);
}

void BlockChannel::take_out(size_t card, const std::string& why) {
  const Time now = times_.now();
  const bool worked = health_.works(card), carries = cards_[card].get() == &current();
  if (worked && cards_.size() > 1 && !outage_)
    log_warn("the " + title_ + " lost " + named(*cards_[card]->port, card) + ": " + why);
  health_.take_out(card, now);
  changed_ |= worked;
  if (!carries) return;
  if (worked) ++replaced_;
  for (size_t i = 1; i < cards_.size(); ++i) {
    const auto epoch = static_cast<uint16_t>(epoch_ + i);
    if (health_.works(epoch % cards_.size())) return switch_to(epoch);
  }
  if (!outage_) outage_ = Outage{now, why};
  mend(now);
}

// No card works. Errors do not tell whether the peer has ended; its lifeline does.
void BlockChannel::mend(Time now) {
  if (std::exchange(heard_, false)) last_heard_ = now;
  if (now < next_mend_) return;
  next_mend_ = now + times_.mend;
  if (last_heard_ && now - std::max(*last_heard_, outage_->begun) <= times_.outage)
    for (size_t i = 1; i <= cards_.size(); ++i) {
      const auto epoch = static_cast<uint16_t>(epoch_ + i);
      Card& card = *cards_[epoch % cards_.size()];
      if (card.port->broken().empty() || card.port->mend()) return switch_to(epoch);
    }
  end(outage_->why);
}

// An epoch whose card is broken lasts until the next progress().
void BlockChannel::switch_to(uint16_t epoch) {
  epoch_ = epoch;
  sent_here_ = 0;
  moved_ = true;
  Card& card = current();
  health_.take_back(card.index);
  changed_ = true;
  if (!card.port->broken().empty()) card.port->mend();
  if (cards_.size() > 1 && !outage_)
    log_warn("the " + title_ + " goes on over " + named(*card.port, card.index));
}

// A block is copied to a new slot, as the library may still read the old one.
void BlockChannel::send_again() {
  Card& card = current();
  while (sent_here_ < unconfirmed_.size() && card.free.size() >= 2) {
    Unconfirmed& one = unconfirmed_[sent_here_++];
    const size_t slot = card.take_slot();
    std::memcpy(card.port->send_slot(slot).data() + sizeof(Header),
                one.card->port->send_slot(one.slot).data() + sizeof(Header), one.bytes);
    one.card->drop(one.slot);
    one.card = &card;
    one.slot = slot;
    ++card.uses[slot];
    post(card, slot, Kind::kBytes, one.number, one.bytes);
  }
}

void BlockChannel::watch() {
  const Time now = times_.now();
  if (std::exchange(heard_, false)) {
    last_heard_ = now;
    if (outage_ && health_.works(current().index)) {
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(now - outage_->begun);
      log_warn("the " + title_ + " works again after " + std::to_string(took.count()) +
               " ms: " + outage_->why);
      outage_.reset();
    }
  }
  if (std::exchange(moved_, false) || unconfirmed_.empty()) last_moved_ = now;
  if (!health_.works(current().index)) return mend(now);
  if (now - last_moved_ > times_.silence) {
    health_.suspect(current().index, now);
    last_moved_ = now;
  }
  const CardHealth::Advice advice = health_.look(now);
  for (const size_t index : advice.ping) {
    Card& card = *cards_[index];
    if (!card.port->broken().empty() && !card.port->mend()) continue;
    const uint32_t number = health_.ping(index);
    card.sent_before_ping = number_ - static_cast<uint32_t>(unconfirmed_.size() - sent_here_);
    if (card.free.size() >= 2) post(card, card.take_slot(), Kind::kPing, number);
  }
  if (advice.silent)
    take_out(*advice.silent, "the peer answers over another card and not over this one");
}

void BlockChannel::end(std::string_view why) {
  if (ended_.empty()) ended_ = why;
}

bool BlockChannel::all_sent() const {
  return !ended_.empty() || (health_.works(current().index) && current().in_flight == 0 &&
                             sent_here_ == unconfirmed_.size());
}

std::span<const std::byte> BlockChannel::unread(const Arrival& one) const {
  return port(one.card).receive_slot(one.slot).subspan(one.begin, one.end - one.begin);
}

void BlockChannel::pop_arrival() {
  const Arrival one = arrivals_.front();
  arrivals_.pop_front();
  ++read_;
  if (!ended_.empty()) return;
  port(one.card).receive(one.slot);
  answer_and_confirm();
}

}  // namespace hccl_like
