#include "transport/fabric/fabric_port.h"

#include <rdma/fi_tagged.h>

#include <algorithm>

#include "core/base/deadline.h"

namespace hccl_like {
namespace {

// Timeout for the completions of cancelled receives.
constexpr std::chrono::milliseconds kTimeout{100};

void* descriptor(const FabricSlots& slots) {
  return slots.registration ? fi_mr_desc(slots.registration.get()) : nullptr;
}

bool quiet(const FabricSlots& slots) {
  return std::ranges::all_of(slots.operations, [](const auto& one) { return one.done; });
}

}  // namespace

FabricPort::FabricPort(Poller& poller, BlockShape shape, std::shared_ptr<FabricPeer> peer,
                       uint64_t send_tag, uint64_t receive_tag)
    : peer_(std::move(peer)),
      end_(peer_->end()),
      poller_(poller),
      shape_(shape),
      send_tag_(send_tag),
      receive_tag_(receive_tag),
      opening_(end_.opening()),
      sends_(end_.make_slots(shape.slots(), shape.block_bytes)),
      receives_(end_.make_slots(shape.slots(), shape.block_bytes)) {
  poller_.count_nappers(+1);
}

FabricPort::~FabricPort() {
  memory_.reset();
  poller_.count_nappers(-1);
  if (lost_endpoint()) return;
  for (const size_t slot : receiving_)
    if (!receives_->operations[slot].done)
      fi_cancel(&end_.endpoint()->fid, &receives_->operations[slot].context);
  const Deadline deadline = Deadline::after(kTimeout);
  while (!quiet(*receives_) && !deadline.expired()) end_.progress();
  if (!quiet(*receives_)) end_.bury(std::move(receives_));
  if (quiet(*sends_)) return;
  end_.bury(std::move(sends_));
  peer_->keep();
}

const std::string& FabricPort::broken() const {
  if (lost_endpoint()) return end_.why_shut();
  return sends_->broken.empty() ? receives_->broken : sends_->broken;
}

void FabricPort::send(size_t slot, size_t bytes) {
  to_send_.push_back({slot, bytes});
  start();
}

void FabricPort::receive(size_t slot) {
  to_receive_.push_back(slot);
  start();
}

// False if the provider has no room now.
bool FabricPort::started(FabricSlots& slots, size_t slot, long status) {
  if (status == 0) return true;
  slots.operations[slot].done = true;
  if (status != -FI_EAGAIN && slots.broken.empty())
    slots.broken = end_.library().strerror(static_cast<int>(-status));
  return false;
}

void FabricPort::start() {
  if (lost_endpoint()) return;
  fid_ep* const endpoint = end_.endpoint();
  while (!to_receive_.empty()) {
    const size_t slot = to_receive_.front();
    FabricOperation& operation = receives_->operations[slot];
    operation.done = operation.failed = false;
    if (!started(
            *receives_, slot,
            fi_trecv(endpoint, receive_slot(slot).data(), shape_.block_bytes,
                     descriptor(*receives_), peer_->handle(), receive_tag_, 0, &operation.context)))
      break;
    receiving_.push_back(slot);
    to_receive_.pop_front();
  }
  while (!to_send_.empty()) {
    const auto [slot, bytes] = to_send_.front();
    FabricOperation& operation = sends_->operations[slot];
    operation.done = operation.failed = false;
    if (!started(*sends_, slot,
                 fi_tsend(endpoint, send_slot(slot).data(), bytes, descriptor(*sends_),
                          peer_->handle(), send_tag_, &operation.context)))
      break;
    sending_.push_back({slot, bytes});
    to_send_.pop_front();
  }
}

// A failed block counts as sent: the channel sends it again. libfabric forgets a failed receive, so
// the port posts it again, behind the others.
void FabricPort::progress(BlockSink& sink) {
  end_.progress();
  if (!to_send_.empty() || !to_receive_.empty()) start();
  while (!receiving_.empty() && receives_->operations[receiving_.front()].done) {
    const size_t slot = receiving_.front();
    receiving_.pop_front();
    if (receives_->operations[slot].failed)
      receive(slot);
    else
      sink.arrived(slot);
  }
  const bool gone = lost_endpoint();
  while (!sending_.empty() && (gone || sends_->operations[sending_.front().slot].done)) {
    const size_t slot = sending_.front().slot;
    sending_.pop_front();
    sink.sent(slot);
  }
  if (broken().empty()) return;
  for (; !to_send_.empty(); to_send_.pop_front()) sink.sent(to_send_.front().slot);
}

bool FabricPort::mend() {
  if (end_.library().version() < kFabricVersionThatMends) return false;
  if (lost_endpoint()) {
    if (!end_.is_open() && !end_.reopen()) return false;
    for (FabricSlots* slots : {sends_.get(), receives_.get()})
      for (FabricOperation& one : slots->operations) one.done = true;
    to_receive_.insert(to_receive_.end(), receiving_.begin(), receiving_.end());
    receiving_.clear();
    opening_ = end_.opening();
  }
  sends_->broken.clear();
  receives_->broken.clear();
  start();
  return broken().empty();
}

}  // namespace hccl_like
