#include "transport/rendezvous/shared_rendezvous.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/log.h"
#include "core/machine/fence.h"
#include "core/memory/copy.h"
#include "transport/message/kept_memory.h"
#include "transport/same_host/commons.h"

namespace hccl_like {
namespace {

// Wait for a peer that copies a block: much longer than a block takes unless the peer is stopped.
constexpr auto kLongestWait = std::chrono::seconds(1);

}  // namespace

SharedRendezvous::SharedRendezvous(Wire& wire) : wire_(wire), peer_(wire.extensions().same_host) {
  if (peer_ == nullptr) return;
  const SameHostPeer::Workspace space = peer_->workspace();
  slots_ = std::min({space.own.size() / sizeof(RendezvousSlot),
                     space.peers.size() / sizeof(RendezvousSlot), kSlots});
  shared_ = space.memory;
  own_ = reinterpret_cast<RendezvousSlot*>(space.own.data());
  peers_ = reinterpret_cast<RendezvousSlot*>(space.peers.data());
}

SharedRendezvous::~SharedRendezvous() { cancel(std::nullopt, wire_.failure() == nullptr); }

bool SharedRendezvous::is_mapped(const Message& message, const Pieces& pieces) const {
  return slots_ > 0 && message.place.range != nullptr && message.bytes >= kLeastMapped &&
         pieces.size() == 1 && Blocks(message.bytes).count() <= Blocks::kMost;
}

ExportedRange SharedRendezvous::named(const SharedPlace& place) {
  ExportedRange range = *place.range;
  if (place.exports != nullptr)
    range.name = place.exports->name(*place.device, place.index, range.handle);
  return range;
}

ExportedRange SharedRendezvous::receive_range(const Recv& recv) const { return named(recv.place); }

ExportedRange SharedRendezvous::send_range(uint32_t slot) const {
  return named(sends_[slot].message->place);
}

Claims SharedRendezvous::claims(const Active<Send>& active) const {
  return {own_[&active - sends_.data()], End::kSender};
}

Claims SharedRendezvous::claims(const Active<Recv>& active) const {
  return {peers_[&active - recvs_.data()], End::kReceiver};
}

std::optional<uint32_t> SharedRendezvous::offer(Send& send) {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    RendezvousSlot& shared = own_[slot];
    Active<Send>& active = sends_[slot];
    if (active.message != nullptr ||
        (active.used && shared.receiver_left.load(std::memory_order_acquire) == 0))
      continue;
    shared.claims.store(0, std::memory_order_relaxed);
    shared.sender_done.store(0, std::memory_order_relaxed);
    shared.receiver_done.store(0, std::memory_order_relaxed);
    shared.receiver_left.store(0, std::memory_order_relaxed);
    active = {.message = &send, .used = true};
    ++active_;
    ++sending_;
    return slot;
  }
  return std::nullopt;
}

void SharedRendezvous::begin_send(uint32_t slot, const ExportedRange& into) {
  begin(sends_[slot], sends_[slot].message->from[0].data, into);
}

void SharedRendezvous::retract(uint32_t slot) { end(sends_[slot]); }

bool SharedRendezvous::may_begin(uint64_t slot) const {
  return slot < slots_ && recvs_[slot].message == nullptr;
}

void SharedRendezvous::begin_receive(Recv& recv, uint32_t slot, const ExportedRange& from) {
  recvs_[slot].message = &recv;
  ++active_;
  begin(recvs_[slot], recv.into[0].data, from);
}

template <class OneEnd>
void SharedRendezvous::begin(Active<OneEnd>& active, std::byte* own, const ExportedRange& range) {
  active.begun = true;
  active.own = own;
  const SharedPlace& place = active.message->place;
  auto opened =
      place.memory->open(*place.device, place.index, range, active.message->bytes, commons());
  if (opened.ok()) {
    active.other = std::move(opened).value();
    return;
  }
  log_info([&] { return "a peer's memory cannot be reached: " + to_string(opened.error()); });
  claims(active).refuse();
  tell_peer();
}

void SharedRendezvous::decline(uint32_t slot) {
  peers_[slot].receiver_left.store(1, std::memory_order_release);
}

void SharedRendezvous::end_receive(const Recv& recv) {
  for (Active<Recv>& active : recvs_)
    if (active.message == &recv) end(active);
}

void SharedRendezvous::end(Active<Send>& active) {
  active = {.used = true};
  --active_;
  --sending_;
}

void SharedRendezvous::end(Active<Recv>& active) {
  decline(static_cast<uint32_t>(&active - recvs_.data()));
  active = {};
  --active_;
}

// The peer's driver may sleep until the slots change.
void SharedRendezvous::tell_peer() {
  full_fence();
  peer_->nudge();
}

namespace {

// Factor 4: each end often sends and receives at the same time, with two buffers per message.
void copy(std::byte* to, const std::byte* from, size_t bytes, size_t all) {
  if (4 * all > last_cache_bytes())
    copy_past_caches(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

End end_of(const Send&) { return End::kSender; }
End end_of(const Recv&) { return End::kReceiver; }

}  // namespace

// The sender writes to the receiver's memory, the receiver reads the sender's.
void SharedRendezvous::copy(const Active<Send>& active, Block block) {
  hccl_like::copy(active.other.data + block.begin, active.own + block.begin, block.bytes,
                  active.message->bytes);
}

void SharedRendezvous::copy(const Active<Recv>& active, Block block) {
  hccl_like::copy(active.own + block.begin, active.other.data + block.begin, block.bytes,
                  active.message->bytes);
}

// Returns false if the message was given up during the copy: the source may have been reused.
template <class OneEnd>
bool SharedRendezvous::copy_block(Active<OneEnd>& active, uint32_t number) {
  Claims claims = this->claims(active);
  copy(active, Blocks(active.message->bytes).from(end_of(*active.message), number));
  const bool counts = !claims.closed();
  if (counts)
    claims.count();
  else
    claims.put_back();
  return counts;
}

bool SharedRendezvous::progress(bool copy) {
  if (active_ == 0) return false;
  bool moved = false;
  for (Active<Recv>& active : recvs_)
    if (active.begun && advance(active, copy)) moved = true;
  // The peer copies the same message as its receiver. This end helps if it has nothing to receive.
  for (Active<Send>& active : sends_)
    if (active.begun && advance(active, copy && !moved)) moved = true;
  return moved;
}

template <class OneEnd>
bool SharedRendezvous::advance(Active<OneEnd>& active, bool may_copy) {
  OneEnd& message = *active.message;
  Claims claims = this->claims(active);
  const uint32_t count = Blocks(message.bytes).count();
  bool copied = false;
  if (may_copy && active.reaches())
    if (const auto number = claims.take(count)) copied = copy_block(active, *number);
  if (claims.complete(count)) {
    if (copied) tell_peer();
    done(message);
    end(active);
    return true;
  }
  if (!active.reaches() && claims.other_refuses()) {
    refused(message);
    end(active);
    return true;
  }
  return copied;
}

void SharedRendezvous::done(Send& send) {
  send.moved = send.bytes;
  sent_.push(&send);
}
void SharedRendezvous::done(Recv& recv) {
  recv.moved = recv.bytes;
  received_.push(&recv);
}
void SharedRendezvous::refused(Send& send) { refused_.push(&send); }
void SharedRendezvous::refused(Recv&) {}  // the data follow on the wire

template <class OneEnd>
bool SharedRendezvous::could_advance(const Active<OneEnd>& active) const {
  if (!active.begun) return false;
  const Claims claims = this->claims(active);
  const uint32_t count = Blocks(active.message->bytes).count();
  return claims.complete(count) ||
         (active.reaches() ? claims.may_take(count) : claims.other_refuses());
}

bool SharedRendezvous::could_advance() {
  if (active_ == 0) return false;
  const auto could = [this](const auto& active) { return could_advance(active); };
  return std::ranges::any_of(recvs_, could) || std::ranges::any_of(sends_, could);
}

void SharedRendezvous::cancel(std::optional<uint64_t> communicator, bool peer_lives) {
  if (active_ == 0) return;
  give_up(recvs_, communicator, peer_lives);
  give_up(sends_, communicator, peer_lives);
}

template <class OneEnd>
void SharedRendezvous::give_up(Table<OneEnd>& table, std::optional<uint64_t> communicator,
                               bool peer_lives) {
  for (Active<OneEnd>& active : table) {
    if (active.message == nullptr) continue;
    if (communicator && active.message->tag.communicator != *communicator) continue;
    Claims claims = this->claims(active);
    claims.close();
    const Deadline deadline = Deadline::after(kLongestWait);
    while (peer_lives && claims.other_works() && !deadline.expired()) std::this_thread::yield();
    if (peer_lives && claims.other_works()) keep(active);
    end(active);
  }
}

void SharedRendezvous::keep(const Active<Recv>& active) const {
  if (active.own == nullptr) return;
  std::shared_ptr<void> memory = active.message->place.owner.keep();
  log_warn(std::string("a peer was stopped while it wrote a message into this process's memory") +
           (memory ? "; the memory is kept until the peer goes on or dies"
                   : ", and may go on later: do not use that memory again"));
  if (!memory) return;
  const PeerCommons* const its = commons();  // null: cannot detect a death
  KeptMemory::of_process().add(
      std::move(memory),
      [peer = its == nullptr ? std::nullopt : std::optional(*its), shared = shared_,
       claims = claims(active)] { return !(peer && peer->owner_died()) && claims.other_works(); });
}

}  // namespace hccl_like
