#include "transport/link/link.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/link/inbox.h"
#include "transport/link/outbox.h"
#include "transport/link/traffic.h"
#include "transport/message/fifo.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/same_host/local_peer.h"
#include "transport/wire/same_host_peer.h"

namespace hccl_like {
namespace {

// Each end knows only its own memory, so the decision to announce must not depend on it.
size_t eager_limit(const Rendezvous& rendezvous, const LinkOptions& options) {
  return rendezvous.reaches_devices() ? std::min(options.eager_bytes, kLeastRendezvous - 1)
                                      : options.eager_bytes;
}

struct Ends {
  Ends(std::unique_ptr<Wire> taken, LinkOptions options, Fifo<Link::Mismatch>& mismatches,
       Traffic& traffic)
      : wire(std::move(taken)),
        rendezvous(make_rendezvous(*wire)),
        eager_bytes(options.eager_bytes = eager_limit(*rendezvous, options)),
        outbox(*wire, *rendezvous, options, mismatches, traffic),
        inbox(*wire, outbox, *rendezvous, options, mismatches, traffic) {}

  std::unique_ptr<Wire> wire;
  std::unique_ptr<Rendezvous> rendezvous;
  const size_t eager_bytes;
  Outbox outbox;
  Inbox inbox;
};

constexpr const char* kLeft =
    "it left the group, or its program ended, while this rank still waited for it; look at the end "
    "of its log, and whether all ranks make the same calls";

constexpr size_t kMostParkedAborts = 1024;

template <class OneEnd>
void park(std::vector<OneEnd*>& parked, OneEnd& message) {
  message.done = false;
  message.moved = 0;
  parked.push_back(&message);
}

template <class OneEnd>
void unpark(std::vector<OneEnd*>& parked, uint64_t communicator) {
  std::erase_if(parked, [&](const OneEnd* one) { return one->tag.communicator == communicator; });
}

}  // namespace

struct Link::State {
  State(std::unique_ptr<Wire> taken, const LinkOptions& options) {
    join(std::move(taken), options);
  }
  State(std::string_view expected, const LinkOptions& options, std::unique_ptr<LocalPeer> known,
        bool* someone_wants)
      : expected_transport(expected),
        local_peer(std::move(known)),
        any_wanted(someone_wants),
        eager_bytes(options.eager_bytes) {}

  void join(std::unique_ptr<Wire> taken, const LinkOptions& options);
  void want_wire() {
    wanted = true;
    if (any_wanted != nullptr) *any_wanted = true;
  }
  bool meet();
  void look_for_failure();
  void look_at_local_peer();

  const std::string expected_transport;
  std::string joined_transport;
  const std::unique_ptr<LocalPeer> local_peer;
  bool* const any_wanted = nullptr;
  // Callers read these while the driver may attach a wire.
  std::atomic<const std::string*> transport{&expected_transport};
  std::atomic<size_t> eager_bytes{0};
  std::atomic<bool> reaches_devices{false};

  bool wanted = false;
  std::vector<uint64_t> cancelled;
  std::vector<AbortNotice> parked_aborts;
  std::vector<Send*> parked_sends;
  std::vector<Recv*> parked_recvs;
  bool parked_goodbye = false;

  // The wire refused to sleep although the inbox is stalled and requested no wake-up for bytes.
  bool called_stalled = false;

  Traffic traffic;
  Fifo<Mismatch> mismatches;
  std::optional<Ends> ends;
  std::atomic<Wire*> wire{nullptr};  // of ends
  std::optional<Error> failure;
};

void Link::State::join(std::unique_ptr<Wire> taken, const LinkOptions& options) {
  joined_transport = taken->transport();
  transport.store(&joined_transport, std::memory_order_release);
  Wire* const its = taken.get();
  ends.emplace(std::move(taken), options, mismatches, traffic);
  traffic.connected(joined_transport);
  traffic.follow_rails(its->extensions());
  eager_bytes.store(ends->eager_bytes, std::memory_order_relaxed);
  reaches_devices.store(ends->rendezvous->reaches_devices(), std::memory_order_relaxed);
  wire.store(its, std::memory_order_release);
  wanted = false;
  for (const uint64_t communicator : std::exchange(cancelled, {})) ends->inbox.cancel(communicator);
  for (Recv* recv : std::exchange(parked_recvs, {})) ends->inbox.post(*recv);
  for (Send* send : std::exchange(parked_sends, {})) ends->outbox.post(*send);
  for (const AbortNotice& one : std::exchange(parked_aborts, {}))
    ends->outbox.push_abort(one.communicator, one.reason);
  if (parked_goodbye) ends->outbox.push({.kind = FrameKind::kGoodbye});
}

// Rendezvous progress. After a failure, only completed messages count.
bool Link::State::meet() {
  if (ends->rendezvous->idle() || !ends->rendezvous->progress(/*copy=*/!failure)) return false;
  while (Recv* recv = ends->rendezvous->take_received()) ends->inbox.done(*recv);
  while (Send* send = ends->rendezvous->take_sent()) ends->outbox.done(*send);
  while (Send* send = ends->rendezvous->take_refused()) ends->outbox.send_as_data(*send);
  if (!ends->rendezvous->reaches_devices()) reaches_devices.store(false);
  return true;
}

void Link::State::look_for_failure() {
  if (ends->inbox.failure() != nullptr) {
    failure = *ends->inbox.failure();
  } else if (const Error* lost = ends->wire->failure()) {
    failure = *lost;
    if (ends->inbox.peer_said_goodbye()) failure->message = kLeft;
  }
  // The memory of messages that never complete belongs to their owners again.
  if (failure) ends->outbox.settle();
}

// An orderly exit is a failure, too: it concerns only ranks that wait for the peer.
void Link::State::look_at_local_peer() {
  if (failure || !local_peer || !local_peer->gone()) return;
  failure =
      Error{ErrorCode::kPeerLost, local_peer->said_goodbye() ? kLeft : "the peer's process ended"};
}

Link::Link(std::unique_ptr<Wire> wire, LinkOptions options)
    : state_(std::make_unique<State>(std::move(wire), options)) {}

Link::Link(std::string_view expected, LinkOptions options, std::unique_ptr<LocalPeer> local_peer,
           bool* wanted)
    : state_(std::make_unique<State>(expected, options, std::move(local_peer), wanted)) {}

Link::~Link() = default;

bool Link::connected() const { return state_->ends.has_value(); }

// Parked aborts set no `*wanted`: they leave with a wire made for another reason, or at exit.
bool Link::needs_wire() const {
  return (state_->wanted || !state_->parked_aborts.empty()) && !state_->failure;
}

void Link::want_wire() {
  if (!state_->ends) state_->want_wire();
}

void Link::attach(std::unique_ptr<Wire> wire, LinkOptions options) {
  state_->join(std::move(wire), options);
}

void Link::fail(Error why) {
  if (state_->failure) return;
  state_->failure = std::move(why);
  if (state_->ends) state_->ends->outbox.settle();
}

LocalPeer* Link::local_peer() const { return state_->local_peer.get(); }

void Link::look_for_end() {
  if (!state_->ends && state_->local_peer) state_->local_peer->look_for_end();
}

void Link::post(Send& send) {
  if (state_->failure) return;
  if (state_->ends) return state_->ends->outbox.post(send);
  park(state_->parked_sends, send);
  state_->want_wire();
}

// Also after the end: the message may have arrived before the peer left.
void Link::post(Recv& recv) {
  if (state_->ends) return state_->ends->inbox.post(recv);
  park(state_->parked_recvs, recv);
  state_->want_wire();
}

bool Link::withdraw(Send& send) {
  if (send.done) return true;
  if (state_->ends) return state_->ends->outbox.withdraw(send);
  std::erase(state_->parked_sends, &send);
  return false;
}

bool Link::withdraw(Recv& recv) {
  if (!recv.done && state_->ends) state_->ends->inbox.withdraw(recv);
  if (!recv.done && !state_->ends) std::erase(state_->parked_recvs, &recv);
  return recv.done;
}

bool Link::has_news() const {
  return state_->failure || !state_->mismatches.empty() ||
         (state_->ends && (state_->ends->inbox.has_aborts() || state_->ends->inbox.has_calls())) ||
         (state_->local_peer && (state_->local_peer->has_aborts() || state_->local_peer->gone()));
}

void Link::cancel(uint64_t communicator) {
  if (!state_->ends) {
    unpark(state_->parked_sends, communicator);
    unpark(state_->parked_recvs, communicator);
    state_->cancelled.push_back(communicator);
    return;
  }
  state_->ends->rendezvous->cancel(communicator, /*peer_lives=*/!state_->failure);
  state_->ends->outbox.cancel(communicator);
  state_->ends->inbox.cancel(communicator);
}

bool Link::progress() {
  State& state = *state_;
  if (!state.ends) {
    state.look_at_local_peer();
    return false;
  }
  if (state.failure) {
    const bool met = state.meet();
    return state.ends->inbox.deliver_early() || met;
  }
  const bool sent = state.ends->outbox.progress();
  // A refusal without send space means that the peer has gone: read all it sent, the error follows.
  if (std::exchange(state.called_stalled, false) && !sent) state.ends->inbox.allow_one_more();
  const bool received = state.ends->inbox.progress();
  const bool met = state.meet();
  if (!sent && !received && !met) state.look_for_failure();
  return sent || received || met || state.failure;
}

bool Link::progress(const Send& until) {
  if (state_->failure || !state_->ends) return progress();
  // A full wire drains only if this end reads, too.
  return state_->ends->outbox.progress() && until.done ? true : progress();
}

bool Link::progress(const Recv& until) {
  if (state_->failure || !state_->ends) return progress();
  bool received = state_->ends->inbox.progress(&until);
  if (until.beside && !until.done) received |= state_->meet();
  if (received) return true;
  const bool sent = state_->ends->outbox.progress();
  if (!sent) state_->look_for_failure();
  return sent || state_->failure;
}

bool Link::arrived(const Tag& tag, size_t* bytes) const {
  return state_->ends && state_->ends->inbox.arrived(tag, bytes);
}

void Link::send_abort(uint64_t communicator, std::string_view reason) {
  if (state_->ends) return state_->ends->outbox.push_abort(communicator, reason);
  if (state_->local_peer) return state_->local_peer->send_abort(communicator, reason);
  if (state_->parked_aborts.size() < kMostParkedAborts)
    state_->parked_aborts.push_back({communicator, std::string(reason)});
}

std::optional<AbortNotice> Link::take_abort() {
  if (state_->ends)
    if (auto notice = state_->ends->inbox.take_abort()) return notice;
  // Also with a wire: the peer may have published aborts before the wire existed.
  return state_->local_peer ? state_->local_peer->take_abort() : std::nullopt;
}

bool Link::send_call(const CallNotice& call) {
  if (!state_->ends) return false;
  state_->ends->outbox.push({.kind = FrameKind::kCall,
                             .tag = call.tag,
                             .fingerprint = call.fingerprint,
                             .bytes = call.bytes});
  return true;
}

std::optional<CallNotice> Link::take_call() {
  return state_->ends ? state_->ends->inbox.take_call() : std::nullopt;
}

void Link::send_goodbye() {
  if (state_->ends) return state_->ends->outbox.push({.kind = FrameKind::kGoodbye});
  // If a connection is made before this process exits, the peer must see an orderly end.
  state_->parked_goodbye = true;
}

bool Link::peer_said_goodbye() const {
  if (state_->ends) return state_->ends->inbox.peer_said_goodbye();
  // Without local peer: a peer that was never connected has no messages in flight.
  return state_->local_peer ? state_->local_peer->said_goodbye() : state_->failure.has_value();
}

bool Link::flushed() {
  return state_->failure || !state_->ends ||
         (state_->ends->outbox.empty() && !state_->ends->rendezvous->sends() &&
          state_->ends->wire->flush());
}

bool Link::owes() {
  return !state_->failure && state_->ends &&
         (!state_->ends->outbox.empty() || state_->ends->rendezvous->sends() ||
          state_->ends->wire->owes());
}

const Error* Link::failure() const { return state_->failure ? &*state_->failure : nullptr; }

std::optional<Link::Mismatch> Link::take_mismatch() {
  if (state_->mismatches.empty()) return std::nullopt;
  return state_->mismatches.pop();
}

std::optional<Link::Mismatch> Link::find_stray(uint64_t communicator, const Made& made) const {
  return state_->ends ? state_->ends->inbox.find_stray(communicator, made) : std::nullopt;
}

bool Link::prepare_sleep() {
  if (state_->failure) return true;
  if (!state_->ends) {
    if (!state_->local_peer) return true;
    // The peer did not ring for aborts that it published before this process was shown as asleep.
    if (state_->local_peer->has_aborts()) return false;
    return !state_->local_peer->died() || !state_->local_peer->look_for_end();
  }
  Ends& ends = *state_->ends;
  if (ends.inbox.has_work() || ends.outbox.settle()) return false;
  const bool writing = ends.outbox.wants_to_write();
  // A stalled inbox cannot consume bytes before a receive is posted.
  const bool stalled = ends.inbox.stalled();
  const bool may = ends.wire->prepare_sleep({.bytes = !stalled, .space = writing});
  state_->called_stalled = stalled && !may;
  // Check after the wire is armed: later changes by the peer ring the doorbell.
  return may && !ends.rendezvous->could_advance();
}

void Link::end_sleep() {
  if (state_->ends) state_->ends->wire->end_sleep();
}

Traffic& Link::traffic() { return state_->traffic; }

size_t Link::eager_bytes() const { return state_->eager_bytes.load(std::memory_order_relaxed); }

bool Link::reaches_devices() const {
  return state_->reaches_devices.load(std::memory_order_relaxed);
}

bool Link::prepare(const std::byte* data, size_t bytes) {
  return !state_->failure && state_->ends && state_->ends->rendezvous->prepare(data, bytes);
}

std::string_view Link::transport() const {
  return *state_->transport.load(std::memory_order_acquire);
}

const PeerCommons* Link::commons() const {
  if (state_->local_peer) return &state_->local_peer->commons();
  Wire* const wire = state_->wire.load(std::memory_order_acquire);
  const SameHostPeer* const peer = wire == nullptr ? nullptr : wire->extensions().same_host;
  return peer == nullptr ? nullptr : peer->commons();
}

// A local peer shows whether it sleeps, independent of the wire.
void Link::nudge() {
  if (state_->local_peer) return state_->local_peer->nudge();
  Wire* const wire = state_->wire.load(std::memory_order_acquire);
  if (SameHostPeer* const peer = wire == nullptr ? nullptr : wire->extensions().same_host)
    peer->nudge();
}

}  // namespace hccl_like
