#include "transport/shared_rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/copy.h"
#include "core/deadline.h"
#include "core/fence.h"
#include "core/log.h"
#include "core/pace.h"
#include "core/process_memory.h"
#include "transport/commons.h"
#include "transport/kept_memory.h"
#include "transport/process_place.h"

namespace hccl_like {
namespace {

// For a peer that is at work on a block: far longer than that takes, unless the peer was stopped.
constexpr auto kLongestWait = std::chrono::seconds(1);

}  // namespace

SharedRendezvous::SharedRendezvous(Wire& wire) : wire_(wire) {
  const Wire::Workspace space = wire.workspace();
  slots_ = std::min({space.own.size() / sizeof(RendezvousSlot),
                     space.peers.size() / sizeof(RendezvousSlot), kSlots});
  shared_ = space.memory;
  own_ = reinterpret_cast<RendezvousSlot*>(space.own.data());
  peers_ = reinterpret_cast<RendezvousSlot*>(space.peers.data());
  if (wire.commons() != nullptr) process_ = wire.commons()->readable_process();
}

SharedRendezvous::~SharedRendezvous() { cancel(std::nullopt, wire_.failure() == nullptr); }

bool SharedRendezvous::takes(const Message& message, const Pieces& pieces) const {
  // A sender does not know whether its memory can be read: that the peer's can be is a good sign.
  const bool reachable = message.place.range != nullptr ? message.bytes >= kLeastMapped
                                                        : process_ && message.bytes >= Pace::kLeast;
  return slots_ > 0 && reachable && pieces.size() == 1 &&
         Blocks(message.bytes).count() <= Blocks::kMost;
}

ExportedRange SharedRendezvous::named(const SharedPlace& place) {
  ExportedRange range = *place.range;
  if (place.exports != nullptr)
    range.name = place.exports->name(*place.device, place.index, range.handle);
  return range;
}

ExportedRange SharedRendezvous::place(const Recv& recv) const {
  // Nobody writes into private memory.
  return recv.place.range != nullptr ? named(recv.place) : process_place(0);
}

ExportedRange SharedRendezvous::place(uint32_t slot) const {
  const Send& send = *sends_[slot].message;
  if (send.place.range != nullptr) return named(send.place);
  return process_place(reinterpret_cast<uint64_t>(send.from[0].data));
}

// ----------------------------------------------------------------------------------------------------------- sends

Claims SharedRendezvous::claims(const Active<Send>& active) const {
  return {own_[&active - sends_.data()], End::kSender};
}

Claims SharedRendezvous::claims(const Active<Recv>& active) const {
  return {peers_[&active - recvs_.data()], End::kReceiver};
}

// ------------------------------------------------------------------------------------------------ beginning and ending

std::optional<uint32_t> SharedRendezvous::offer(Send& send) {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    RendezvousSlot& shared = own_[slot];
    Active<Send>& active = sends_[slot];
    if (active.in_use() ||
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

void SharedRendezvous::begin(uint32_t slot, const ExportedRange& into) {
  Active<Send>& active = sends_[slot];
  if (!begin(active, active.message->from[0].data, into)) cannot_reach(active);
}

bool SharedRendezvous::set_down(const Send& send) {
  for (Active<Send>& active : sends_) {
    if (active.message != &send) continue;
    active.set_down = send.tag;
    active.message = nullptr;
    return true;
  }
  return false;
}

bool SharedRendezvous::take_up(Send& send) {
  if (sending_ == 0) return false;
  for (Active<Send>& active : sends_) {
    if (active.set_down != send.tag) continue;
    active.set_down.reset();
    active.message = &send;
    return true;
  }
  return false;
}

void SharedRendezvous::retract(uint32_t slot) { end(sends_[slot]); }

bool SharedRendezvous::may_begin(uint64_t slot) const {
  return slot < slots_ && recvs_[slot].message == nullptr;
}

bool SharedRendezvous::begin(Recv& recv, uint32_t slot, const ExportedRange& from) {
  Active<Recv>& active = recvs_[slot];
  active.message = &recv;
  ++active_;
  if (begin(active, recv.into[0].data, from)) return true;
  if (recv.passing) {
    active = {};
    --active_;
    return false;
  }
  cannot_reach(active);
  return true;
}

template <class OneEnd>
bool SharedRendezvous::begin(Active<OneEnd>& active, std::byte* own, const ExportedRange& range) {
  active.begun = true;
  active.own = own;
  return open(active, range);
}

bool SharedRendezvous::open(Active<Send>& active, const ExportedRange& range) {
  return map(active, range);
}

bool SharedRendezvous::open(Active<Recv>& active, const ExportedRange& range) {
  if (process_) active.address = address_in_process(range);
  return active.address || map(active, range);
}

template <class OneEnd>
bool SharedRendezvous::map(Active<OneEnd>& active, const ExportedRange& range) {
  const SharedPlace& place = active.message->place;
  if (place.range == nullptr || address_in_process(range)) return false;
  auto opened =
      place.memory->open(*place.device, place.index, range, active.message->bytes, wire_.commons());
  if (opened.ok())
    active.other = std::move(opened).value();
  else
    log_info([&] { return "a peer's memory cannot be reached: " + to_string(opened.error()); });
  return opened.ok();
}

template <class OneEnd>
void SharedRendezvous::cannot_reach(Active<OneEnd>& active) {
  active.address.reset();
  claims(active).refuse();
  tell_peer();
}

void SharedRendezvous::leave(uint32_t slot) {
  peers_[slot].receiver_left.store(1, std::memory_order_release);
}

// A sender that lends hears of it in no other way.
void SharedRendezvous::decline(uint32_t slot) {
  Claims(peers_[slot], End::kReceiver).refuse();
  leave(slot);
  tell_peer();
}

void SharedRendezvous::leave(const Recv& recv) {
  for (Active<Recv>& active : recvs_)
    if (active.message == &recv) end(active);
}

void SharedRendezvous::end(Active<Send>& active) {
  active = {.used = true};
  --active_;
  --sending_;
}

void SharedRendezvous::end(Active<Recv>& active) {
  leave(static_cast<uint32_t>(&active - recvs_.data()));
  active = {};
  --active_;
}

// What the peer may be asleep for has changed in the slots.
void SharedRendezvous::tell_peer() {
  full_fence();
  wire_.nudge();
}

// ------------------------------------------------------------------------------------------------------------ copying

namespace {

// A block of a message of `all` bytes. Often each end sends one and receives one at a time, and all four are touched.
void copy(std::byte* to, const std::byte* from, size_t bytes, size_t all) {
  if (4 * all > last_cache_bytes())
    copy_past_caches(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

End end_of(const Send&) { return End::kSender; }
End end_of(const Recv&) { return End::kReceiver; }

}  // namespace

// The sender pushes into the other's memory, the receiver pulls out of it.
bool SharedRendezvous::copy(const Active<Send>& active, Block block) {
  hccl_like::copy(active.other.data + block.begin, active.own + block.begin, block.bytes,
                  active.message->bytes);
  return true;
}

bool SharedRendezvous::copy(const Active<Recv>& active, Block block) {
  std::byte* const to = active.own + block.begin;
  if (!active.address) {
    hccl_like::copy(to, active.other.data + block.begin, block.bytes, active.message->bytes);
    return true;
  }
  if (process_ && read_process(*process_, to, *active.address + block.begin, block.bytes))
    // What was read of another process that has the number of one that is gone is not the message.
    return !wire_.commons()->owner_died();
  // One that is gone fails with its wire.
  if (process_ && errno != ESRCH) {
    log_info([] {
      return std::string("a peer's private memory cannot be read by process_vm_readv (") +
             std::strerror(errno) + "): messages between these two go through shared memory";
    });
    process_.reset();
  }
  return false;
}

// False if it was not copied.
template <class OneEnd>
bool SharedRendezvous::copy_block(Active<OneEnd>& active, uint32_t number) {
  Claims claims = this->claims(active);
  const bool copied =
      copy(active, Blocks(active.message->bytes).from(end_of(*active.message), number));
  // Of a message that was given up while it was copied from its memory, which may have been somebody else's in the end.
  if (copied && !claims.closed()) {
    claims.count();
    return true;
  }
  claims.put_back();
  if (!copied) cannot_reach(active);
  return false;
}

bool SharedRendezvous::progress(bool copy) {
  if (active_ == 0) return false;
  bool moved = false;
  for (Active<Recv>& active : recvs_)
    if (active.begun && advance(active, copy)) moved = true;
  // The receiver of what is sent does the same: this end helps when it has nothing to receive itself.
  for (Active<Send>& active : sends_)
    if (active.begun && active.message != nullptr && advance(active, copy && !moved)) moved = true;
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
  if (!message.passing && !active.reaches() && claims.other_refuses()) {
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
void SharedRendezvous::refused(Recv&) {}  // its data will come

template <class OneEnd>
bool SharedRendezvous::could_advance(const Active<OneEnd>& active) const {
  if (!active.begun || active.message == nullptr) return false;
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

// ---------------------------------------------------------------------------------------------------------- giving up

void SharedRendezvous::cancel(std::optional<uint64_t> communicator, bool peer_lives) {
  if (active_ == 0) return;
  give_up(recvs_, communicator, peer_lives);
  give_up(sends_, communicator, peer_lives);
}

template <class OneEnd>
void SharedRendezvous::give_up(Table<OneEnd>& table, std::optional<uint64_t> communicator,
                               bool peer_lives) {
  for (Active<OneEnd>& active : table) {
    if (!active.in_use()) continue;
    if (communicator && active.tag().communicator != *communicator) continue;
    Claims claims = this->claims(active);
    claims.close();
    const Deadline deadline = Deadline::after(kLongestWait);
    while (peer_lives && claims.other_works() && !deadline.expired()) std::this_thread::yield();
    if (peer_lives && claims.other_works()) keep(active);
    end(active);
  }
}

void SharedRendezvous::keep(const Active<Recv>& active) const {
  if (active.message == nullptr || active.own == nullptr) return;
  std::shared_ptr<void> memory = active.message->place.owner.keep();
  log_warn(std::string("a peer was stopped while it wrote a message into this process's memory") +
           (memory ? "; the memory is kept until the peer goes on or dies"
                   : ", and may go on later: do not use that memory again"));
  if (!memory) return;
  const PeerCommons* const commons = wire_.commons();  // null: a death is not seen
  KeptMemory::of_process().add(
      std::move(memory), [peer = commons == nullptr ? std::nullopt : std::optional(*commons),
                          shared = shared_, claims = claims(active)] {
        return !(peer && peer->owner_died()) && claims.other_works();
      });
}

}  // namespace hccl_like
