#include "transport/rendezvous/remote_rendezvous.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/message/absorb.h"

namespace hccl_like {

using Told = RemoteMemory::Told;
using State = RemoteMemory::State;

namespace {

// While reads are in flight the driver polls instead of sleeping, because software RMA needs both
// drivers. If nothing moves for this long, the peer is assumed stopped and the driver sleeps.
constexpr std::chrono::milliseconds kAwake{2};

}  // namespace

static_assert(sizeof(RemotePlace) <= sizeof(hcd_ipc_handle));

// Never idle: notes may come at any time.
RemoteRendezvous::RemoteRendezvous(RemoteMemory& memory, std::chrono::milliseconds timeout)
    : memory_(memory), timeout_(timeout) {
  active_ = 1;
}

RemoteRendezvous::~RemoteRendezvous() { cancel(std::nullopt, /*peer_lives=*/true); }

bool RemoteRendezvous::has_room() const {
  return std::ranges::any_of(offers_, [](const Offer& one) { return one.free(); });
}

std::optional<uint32_t> RemoteRendezvous::offer(Send& send) {
  const auto found = std::ranges::find_if(offers_, [](const Offer& one) { return one.free(); });
  if (found == offers_.end()) return std::nullopt;
  const auto slot = static_cast<uint32_t>(found - offers_.begin());
  const auto place = memory_.show(slot, send.from[0].data, send.bytes);
  if (!place) return std::nullopt;
  const uint32_t message = (found->message == 0 ? slot : found->message) + kSlots;
  *found = {.send = &send, .message = message, .place = *place, .shown = true, .left = false};
  return message;
}

ExportedRange RemoteRendezvous::send_range(uint32_t message) const {
  ExportedRange range;
  std::memcpy(range.handle.bytes, &offers_[slot_of(message)].place, sizeof(RemotePlace));
  return range;
}

// The receiver has not read.
void RemoteRendezvous::retract(uint32_t message) {
  Offer& offer = offers_[slot_of(message)];
  hide(offer);
  end(offer);
}

void RemoteRendezvous::begin_send(uint32_t message, const ExportedRange&) {
  offers_[slot_of(message)].begun = true;
}

void RemoteRendezvous::end(Offer& offer) {
  offer.send = nullptr;
  offer.begun = false;
}

void RemoteRendezvous::hide(Offer& offer) {
  if (std::exchange(offer.shown, false)) memory_.hide(static_cast<size_t>(&offer - offers_.data()));
}

void RemoteRendezvous::heard_left(uint32_t message, bool taken) {
  Offer& offer = offers_[slot_of(message)];
  if (offer.message != message) return;
  hide(offer);
  offer.left = offer.let_go = true;
  Send* const send = offer.send;
  end(offer);
  if (send == nullptr) return;
  if (taken) send->moved = send->bytes;
  (taken ? sent_ : refused_).push(send);
}

bool RemoteRendezvous::sends() const {
  return std::ranges::any_of(offers_, [](const Offer& one) { return one.send != nullptr; });
}

bool RemoteRendezvous::may_begin(uint64_t message) const {
  return message <= UINT32_MAX && pulls_[slot_of(static_cast<uint32_t>(message))].recv == nullptr;
}

void RemoteRendezvous::begin_receive(Recv& recv, uint32_t message, const ExportedRange& from) {
  const uint32_t slot = slot_of(message);
  // The sender is giving up the communicator: the message never comes.
  if (stopped_[slot] == message) return decline(message);
  seen_[slot] = message;
  Pull& pull = pulls_[slot];
  pull = {.recv = &recv, .message = message};
  std::memcpy(&pull.from, from.handle.bytes, sizeof pull.from);
}

void RemoteRendezvous::decline(uint32_t message) {
  seen_[slot_of(message)] = message;
  memory_.tell({Told::kDropped, message});
}

void RemoteRendezvous::end_receive(const Recv& recv) {
  for (Pull& pull : pulls_)
    if (pull.recv == &recv) give_up(pull);
}

void RemoteRendezvous::end(Pull& pull, Told told) {
  memory_.tell({told, pull.message});
  if (owner_ == &pull) owner_ = nullptr;
  pull.recv = nullptr;
}

void RemoteRendezvous::heard_stop(uint32_t message) {
  const uint32_t slot = slot_of(message);
  Pull& pull = pulls_[slot];
  if (pull.recv != nullptr && pull.message == message) {
    pull.stopped = true;
  } else if (static_cast<int32_t>(message - seen_[slot]) >
             0) {  // otherwise the receive has ended, and the sender gets the note of that
    stopped_[slot] = message;
    memory_.tell({Told::kStopped, message});
  }
}

bool RemoteRendezvous::listen() {
  bool any = false;
  while (const auto note = memory_.hear()) {
    any = true;
    switch (note->told) {
      case Told::kTaken:
      case Told::kDropped:
        heard_left(note->message, note->told == Told::kTaken);
        break;
      case Told::kStop:
        heard_stop(note->message);
        break;
      case Told::kStopped:
        if (Offer& offer = offers_[slot_of(note->message)]; offer.message == note->message)
          offer.let_go = true;
        break;
    }
  }
  return any;
}

bool RemoteRendezvous::progress(bool copy) {
  memory_.progress();
  bool moved = listen();
  for (Pull& pull : pulls_)
    if (pull.recv != nullptr && advance(pull, copy)) moved = true;
  if (moved) awake_.reset();
  // Includes results of give-ups of other communicators.
  return moved || found();
}

bool RemoteRendezvous::advance(Pull& pull, bool go_on) {
  bool moved = finish_parts(pull);
  if (pull.stopped || pull.failed) {
    if (pull.under_way > 0) return moved;
    if (pull.failed && !pull.stopped && pull.recv->combine != nullptr && pull.read > 0) {
      memory_.abandon("a part of a message could not be read");
    } else {
      // Restart from zero: the sender may send the message through the wire.
      pull.recv->into_at = {};
      pull.recv->moved = 0;
    }
    end(pull, Told::kDropped);
    return true;
  }
  if (go_on && ask(pull)) moved = true;
  if (pull.read < pull.recv->bytes) return moved;
  pull.recv->moved = pull.recv->bytes;
  received_.push(pull.recv);
  end(pull, Told::kTaken);
  return true;
}

bool RemoteRendezvous::finish_parts(Pull& pull) {
  bool any = false;
  while (pull.under_way > 0) {
    const Part& part = pull.parts[pull.first];
    const State state = memory_.state(part.read);
    if (state == State::kUnderWay) break;
    // If the sender released the memory before this read, its note is there. Process it first.
    listen();
    if (state == State::kFailed && !pull.stopped) {
      pull.failed = true;
      usable_ = false;
    }
    if (!pull.stopped && !pull.failed) {
      if (part.buffer != nullptr) absorb(*pull.recv, part.buffer, part.bytes);
      pull.read += part.bytes;
    }
    memory_.release(part.read);
    pull.first = (pull.first + 1) % kAhead;
    --pull.under_way;
    any = true;
  }
  return any;
}

bool RemoteRendezvous::ask(Pull& pull) {
  Recv& recv = *pull.recv;
  bool any = false;
  while (pull.under_way < kAhead && pull.asked < recv.bytes) {
    Part part{.bytes = std::min(kPart, recv.bytes - pull.asked)};
    std::byte* into = nullptr;
    if (recv.combine != nullptr) {
      part.buffer = into = buffer(pull);
      if (into == nullptr) break;
    } else {
      const Piece piece = recv.into_at.here(recv.into);
      into = piece.data;
      part.bytes = std::min(part.bytes, piece.bytes);
    }
    const auto read = memory_.read(pull.from, pull.asked, {into, part.bytes});
    if (!read) break;
    part.read = *read;
    pull.parts[(pull.first + pull.under_way++) % kAhead] = part;
    pull.asked += part.bytes;
    if (recv.combine == nullptr) recv.into_at.advance(recv.into, part.bytes);
    any = true;
  }
  return any;
}

// One message at a time uses the buffers. The next reduction waits.
std::byte* RemoteRendezvous::buffer(const Pull& pull) {
  if (owner_ != nullptr && owner_ != &pull) return nullptr;
  owner_ = &pull;
  if (!buffers_) buffers_ = std::make_unique_for_overwrite<Buffer[]>(kAhead);
  return buffers_[(pull.first + pull.under_way) % kAhead].bytes;
}

bool RemoteRendezvous::could_advance() {
  memory_.progress();
  if (memory_.has_notes() || found()) return true;
  const auto reads = [](const Pull& pull) { return pull.recv != nullptr && pull.under_way > 0; };
  const auto first_done = [&](const Pull& pull) {
    return reads(pull) && memory_.state(pull.parts[pull.first].read) != State::kUnderWay;
  };
  if (std::ranges::any_of(pulls_, first_done)) return true;
  const auto is_read = [](const Offer& one) { return one.begun; };
  if (std::ranges::none_of(pulls_, reads) && std::ranges::none_of(offers_, is_read)) return false;
  if (!awake_) awake_ = Deadline::after(kAwake);
  return !awake_->expired();
}

void RemoteRendezvous::give_up(Pull& pull) {
  const Deadline deadline = Deadline::after(timeout_);
  while (pull.under_way > 0) {
    memory_.progress();
    pull.stopped = true;
    if (finish_parts(pull)) continue;
    if (deadline.expired()) memory_.abandon("reads that were given up have not ended");
    std::this_thread::yield();
  }
  end(pull, Told::kDropped);
}

void RemoteRendezvous::cancel(std::optional<uint64_t> communicator, bool peer_lives) {
  const auto given_up = [&](const Message* message) {
    return message != nullptr && (!communicator || message->tag.communicator == *communicator);
  };
  std::array<bool, kSlots> ours{};
  for (size_t slot = 0; slot < kSlots; ++slot) {
    Offer& offer = offers_[slot];
    ours[slot] = given_up(offer.send);
    if (!ours[slot]) continue;
    end(offer);
    memory_.tell({Told::kStop, offer.message});
  }
  for (Pull& pull : pulls_)
    if (given_up(pull.recv)) give_up(pull);
  const Deadline deadline = Deadline::after(timeout_);
  const auto waits = [&] {
    for (size_t slot = 0; slot < kSlots; ++slot)
      if (ours[slot] && !offers_[slot].let_go) return true;
    return false;
  };
  while (peer_lives && waits() && !deadline.expired()) {
    // The peer may be waiting in cancel(), too.
    progress(/*copy=*/false);
    std::this_thread::yield();
  }
  for (size_t slot = 0; slot < kSlots; ++slot)
    if (ours[slot]) hide(offers_[slot]);
  sent_.erase_if(given_up);
  refused_.erase_if(given_up);
  received_.erase_if(given_up);
}

}  // namespace hccl_like
