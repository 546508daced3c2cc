// Messages longer than eager_bytes: announcement, request and rendezvous.
#include <cstring>
#include <utility>

#include "transport/link/inbox.h"

namespace hccl_like {

void Inbox::ask_for(Recv& recv) {
  const FrameHeader ready{.kind = FrameKind::kReady,
                          .tag = recv.tag,
                          .fingerprint = recv.fingerprint,
                          .bytes = recv.bytes};
  recv.beside = rendezvous_.can_receive(recv);
  if (recv.beside)
    outbox_.push(ready, {.range = rendezvous_.receive_range(recv)});
  else
    outbox_.push(ready);
}

// Both the announcement and the posted receive are there.
void Inbox::meet(Recv& recv, const Descriptor& from) {
  const auto slot = static_cast<uint32_t>(from.slot);
  if (recv.beside)
    rendezvous_.begin_receive(recv, slot, from.range);
  else
    rendezvous_.decline(slot);
}

// Reads the header together with a Descriptor as payload. False: incomplete or invalid.
bool Inbox::read_descriptor() {
  constexpr size_t kBoth = sizeof header_ + sizeof descriptor_;
  const std::span<const std::byte> view = wire_.peek(kBoth);
  if (view.size() < kBoth) return false;
  std::memcpy(&descriptor_, view.data() + sizeof header_, sizeof descriptor_);
  if (header_.kind == FrameKind::kAnnounce && !rendezvous_.may_begin(descriptor_.slot)) {
    fail(kSlotInUse);
    return false;
  }
  return true;
}

void Inbox::begin_announced(const FrameHeader& header) {
  const bool described = header.payload > 0;
  Incoming* found = incoming_.find(header.tag);
  if (found == nullptr) {
    if (!is_cancelled(header.tag.communicator))
      keep_announced(header, incoming_.insert(header.tag, {}));
    else if (described)
      rendezvous_.decline(static_cast<uint32_t>(descriptor_.slot));
  } else if (found->early != nullptr || found->recv->moved > 0) {
    fail("two messages with one tag");
  } else if (found->recv->caller_driven) {
    found->recv = nullptr;
    keep_announced(header, *found);
  } else {
    Recv& recv = *found->recv;
    if (!std::exchange(found->asked, true)) ask_for(recv);
    if (matches(recv, header)) {
      if (described) meet(recv, descriptor_);
      return;
    }
    incoming_.erase(header.tag);
    if (described) rendezvous_.decline(static_cast<uint32_t>(descriptor_.slot));
  }
}

void Inbox::keep_announced(const FrameHeader& header, Incoming& incoming) {
  incoming.early = new_early(header);
  incoming.early->from = descriptor_;
}

void Inbox::begin_data(const FrameHeader& header) {
  const Incoming* found = incoming_.find(header.tag);
  if (found == nullptr) {
    if (!is_cancelled(header.tag.communicator)) fail("data that nobody asked for");
    return;
  }
  Recv* recv = found->recv;
  const size_t offset = header.fingerprint;
  if (recv == nullptr || !found->asked || found->early != nullptr || header.bytes != recv->bytes ||
      offset != recv->moved || header.payload % recv->element_bytes != 0) {
    fail("data that does not fit what was asked for");
    return;
  }
  // The rendezvous could not carry the message.
  if (recv->device) return mismatches_.push({.tag = header.tag, .unreachable = true});
  if (offset == 0) rendezvous_.end_receive(*recv);
  recv_ = recv;
}

}  // namespace hccl_like
