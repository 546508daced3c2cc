#include "transport/link/self_messages.h"

#include <algorithm>
#include <cstring>

namespace hccl_like {

void SelfMessages::post(Send& send) {
  const Posted* found = posted_.find(send.tag);
  if (found == nullptr) {
    posted_.insert(send.tag, {.send = &send});
    return;
  }
  exchange(send, *found->recv);
}

void SelfMessages::post(Recv& recv) {
  const Posted* found = posted_.find(recv.tag);
  if (found == nullptr) {
    posted_.insert(recv.tag, {.recv = &recv});
    return;
  }
  exchange(*found->send, recv);
}

void SelfMessages::exchange(Send& send, Recv& recv) {
  posted_.erase(recv.tag);
  if (send.fingerprint != recv.fingerprint || send.bytes != recv.bytes) {
    mismatches_.push({.tag = recv.tag,
                      .expected = recv.fingerprint,
                      .received = send.fingerprint,
                      .expected_bytes = recv.bytes,
                      .received_bytes = send.bytes});
    return;
  }
  for (size_t at = 0; at < send.bytes;) {
    const Piece from = send.from.from(at), into = recv.into.from(at);
    const size_t part = std::min(from.bytes, into.bytes);
    std::memmove(into.data, from.data, part);  // they may be one tensor
    at += part;
  }
  for (Message* message : {static_cast<Message*>(&send), static_cast<Message*>(&recv)}) {
    message->done = true;
    --*message->pending;
  }
}

bool SelfMessages::arrived(const Tag& tag, size_t* bytes) const {
  const Posted* found = posted_.find(tag);
  if (found == nullptr || found->send == nullptr) return false;
  *bytes = found->send->bytes;
  return true;
}

void SelfMessages::cancel(uint64_t communicator) {
  posted_.erase_if([&](const Tag& tag, const Posted&) { return tag.communicator == communicator; });
}

std::optional<Link::Mismatch> SelfMessages::take_mismatch() {
  if (mismatches_.empty()) return std::nullopt;
  return mismatches_.pop();
}

}  // namespace hccl_like
