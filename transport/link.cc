#include "transport/link.h"

#include <utility>

#include "transport/fifo.h"
#include "transport/inbox.h"
#include "transport/outbox.h"
#include "transport/rendezvous.h"

namespace hccl_like {

struct Link::State {
  State(std::unique_ptr<Wire> taken, const LinkOptions& options)
      : wire(std::move(taken)),
        rendezvous(*wire),
        outbox(*wire, rendezvous, options, mismatches),
        inbox(*wire, outbox, rendezvous, options, mismatches) {}

  bool meet();
  void look_for_failure();

  std::unique_ptr<Wire> wire;
  Fifo<Mismatch> mismatches;
  Rendezvous rendezvous;
  Outbox outbox;
  Inbox inbox;
  std::optional<Error> failure;
};

// What goes beside the wire; after a failure only what is complete already.
bool Link::State::meet() {
  if (!rendezvous.progress(/*copy=*/!failure)) return false;
  while (Recv* recv = rendezvous.take_received()) inbox.done(*recv);
  while (Send* send = rendezvous.take_sent()) outbox.done(*send);
  while (Send* send = rendezvous.take_refused()) outbox.send_as_data(*send);
  return true;
}

void Link::State::look_for_failure() {
  if (inbox.failure() != nullptr) {
    failure = *inbox.failure();
  } else if (const Error* lost = wire->failure()) {
    failure = *lost;
    if (inbox.peer_said_goodbye())
      failure->message =
          "the peer ended its process group in order, but this rank still expected "
          "messages from it: do all ranks call the same operations";
  }
}

Link::Link(std::unique_ptr<Wire> wire, LinkOptions options)
    : state_(std::make_unique<State>(std::move(wire), options)) {}

Link::~Link() = default;

void Link::post(Send& send) {
  if (!state_->failure) state_->outbox.post(send);
}

// Also after the end: what the peer sent before it left may have been waiting here for this.
void Link::post(Recv& recv) { state_->inbox.post(recv); }

bool Link::withdraw(Send& send) { return send.done || state_->outbox.withdraw(send); }

bool Link::withdraw(Recv& recv) {
  if (!recv.done) state_->inbox.withdraw(recv);
  return recv.done;
}

bool Link::has_news() const {
  return state_->failure || state_->inbox.has_aborts() || !state_->mismatches.empty();
}

void Link::cancel(uint64_t communicator) {
  state_->rendezvous.cancel(communicator, /*peer_lives=*/!state_->failure);
  state_->outbox.cancel(communicator);
  state_->inbox.cancel(communicator);
}

bool Link::progress() {
  if (state_->failure) {
    const bool met = state_->meet();
    return state_->inbox.deliver_early() || met;
  }
  const bool sent = state_->outbox.progress();
  const bool received = state_->inbox.progress();
  const bool met = state_->meet();
  if (!sent && !received && !met) state_->look_for_failure();
  return sent || received || met || state_->failure;
}

bool Link::progress(const Send& until) {
  if (state_->failure) return progress();
  // A full wire empties only if this end reads, too.
  return state_->outbox.progress() && until.done ? true : progress();
}

bool Link::progress(const Recv& until) {
  if (state_->failure) return progress();
  const bool received = state_->inbox.progress(&until);
  return until.done ? received : progress() || received;
}

bool Link::arrived(const Tag& tag, size_t* bytes) const {
  return state_->inbox.arrived(tag, bytes);
}

void Link::send_abort(uint64_t communicator, std::string_view reason) {
  state_->outbox.push_abort(communicator, reason);
}

std::optional<AbortNotice> Link::take_abort() { return state_->inbox.take_abort(); }

void Link::send_goodbye() { state_->outbox.push({.kind = FrameKind::kGoodbye}); }

bool Link::peer_said_goodbye() const { return state_->inbox.peer_said_goodbye(); }

bool Link::flushed() {
  return state_->failure ||
         (state_->outbox.empty() && !state_->rendezvous.sends() && state_->wire->flush());
}

const Error* Link::failure() const { return state_->failure ? &*state_->failure : nullptr; }

std::optional<Link::Mismatch> Link::take_mismatch() {
  if (state_->mismatches.empty()) return std::nullopt;
  return state_->mismatches.pop();
}

bool Link::prepare_sleep() {
  if (state_->failure) return true;
  if (state_->inbox.has_work()) return false;
  const bool writing = state_->outbox.wants_to_write();
  // Stalled, the bytes that are there can't be taken: the wire would refuse to sleep for ever, and
  // only a post, which comes from this process, changes anything.
  const bool may = state_->wire->prepare_sleep(writing);
  // Looked at after the wire is armed: a peer that changes something from here on rings.
  return (may || (state_->inbox.stalled() && !writing)) && !state_->rendezvous.could_advance();
}

void Link::end_sleep() { state_->wire->end_sleep(); }

size_t Link::eager_bytes() const { return state_->inbox.eager_bytes(); }

std::string_view Link::transport() const { return state_->wire->transport(); }

const PeerCommons* Link::commons() const { return state_->wire->commons(); }

void Link::nudge() { state_->wire->nudge(); }

}  // namespace hccl_like
