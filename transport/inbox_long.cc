// Messages that are too long to send unasked: how they are announced, asked for, and met.
#include <cstring>
#include <utility>

#include "transport/inbox.h"

namespace hccl_like {

void Inbox::choose_way(Recv& recv) {
  recv.beside = rendezvous_.takes(recv) && (!rendezvous_.is_a_matter_of_pace(recv) ||
                                            pace_.choose(recv.bytes) == CopyWay::kKernel);
}

void Inbox::ask_for(Recv& recv) {
  const FrameHeader ready{.kind = FrameKind::kReady,
                          .tag = recv.tag,
                          .fingerprint = recv.fingerprint,
                          .bytes = recv.bytes};
  choose_way(recv);
  if (recv.beside)
    outbox_.push(ready, {.range = rendezvous_.place(recv)});
  else
    outbox_.push(ready);
}

// A sender that lends its message waits for no word.
void Inbox::answer(Recv& recv, const FrameHeader& announced) {
  if (announced.kind == FrameKind::kLend)
    choose_way(recv);
  else
    ask_for(recv);
}

// A passing receive asks for nothing: it copies what is lent, if its own memory is mapped, too.
bool Inbox::may_meet(const Recv& recv, const FrameHeader& announced) const {
  return !recv.passing || (announced.kind == FrameKind::kLend && rendezvous_.takes(recv) &&
                           !rendezvous_.is_a_matter_of_pace(recv));
}

// A message whose sender has told where it lies meets a receive that asks for it. From here on both ends are there, and it takes
// what its way takes. False if the receive is a passing one, and leaves it to the next.
bool Inbox::meet(Recv& recv, const Descriptor& from) {
  const auto slot = static_cast<uint32_t>(from.slot);
  if (rendezvous_.takes(recv) && rendezvous_.is_a_matter_of_pace(recv))
    recv.met_at = std::chrono::steady_clock::now();
  if (!recv.beside)
    rendezvous_.decline(slot);
  else if (!rendezvous_.begin(recv, slot, from.range))
    recv.beside = false;
  return recv.beside || !recv.passing;
}

// The payload of an announcement or a wish is read with its header. False: not yet, or it is none.
bool Inbox::read_descriptor() {
  constexpr size_t kBoth = sizeof header_ + sizeof descriptor_;
  const std::span<const std::byte> view = wire_.peek(kBoth);
  if (view.size() < kBoth) return false;
  std::memcpy(&descriptor_, view.data() + sizeof header_, sizeof descriptor_);
  if (announces(header_.kind) && !rendezvous_.may_begin(descriptor_.slot)) {
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
      rendezvous_.leave(static_cast<uint32_t>(descriptor_.slot));
  } else if (found->early != nullptr || found->recv->moved > 0) {
    fail("two messages with one tag");
  } else if (!may_meet(*found->recv, header)) {
    found->recv = nullptr;
    keep_announced(header, *found);
  } else {
    Recv& recv = *found->recv;
    if (!std::exchange(found->asked, true)) answer(recv, header);
    if (matches(recv, header)) {
      if (described && !meet(recv, descriptor_)) {
        *found = {};
        keep_announced(header, *found);
      }
      return;
    }
    incoming_.erase(header.tag);
    if (described) rendezvous_.leave(static_cast<uint32_t>(descriptor_.slot));
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
  // A message that could not go another way.
  if (recv->device) return mismatches_.push({.tag = header.tag, .unreachable = true});
  if (offset == 0) rendezvous_.leave(*recv);
  recv_ = recv;
}

}  // namespace hccl_like
