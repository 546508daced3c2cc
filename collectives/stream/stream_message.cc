#include "collectives/stream/stream_message.h"

#include <string>
#include <utility>

#include "collectives/call/disagreement.h"
#include "collectives/call/fingerprint.h"
#include "collectives/engine/engine.h"

namespace hccl_like {
namespace {

// No slice of a message that the receiver sends has this number.
constexpr uint32_t kAnswer = 1u << 30;

template <class Value>
Layout bytes_of(Value& value) {
  return Layout::even({reinterpret_cast<std::byte*>(&value), sizeof value}, 1, 1);
}

}  // namespace

bool StreamMessage::may_serve(const Device& device, const Hosts& hosts,
                              const CallPathOptions& options) {
  return device.can_open_peers() && device.can_copy_within() && device.can_make_streams() &&
         hosts.count() == 1 && hosts.size() > 1 && options.maps_memory && options.direct;
}

StreamMessage::StreamMessage(std::shared_ptr<Communicator> communicator, const Device& device,
                             int index, hcd_stream stream, Call call, DeviceRange memory)
    : communicator_(std::move(communicator)),
      device_(device),
      index_(index),
      stream_(stream),
      call_(std::move(call)),
      memory_(memory) {
  Call one{.collective = call_.collective, .root = call_.root, .tag = call_.tag};
  one.timeout = call_.timeout;
  one.precedes = std::make_shared<const Call>(call_);
  (sends() ? one.input : one.output) = bytes_of(record_);
  first_ = communicator_->prepare(std::move(one));
  if (!sends()) return;
  record_.memory.bytes = memory_.bytes;
  if (stream_ == 0 || call_.root == communicator_->rank()) return;
  Exports::Last last;
  const auto shown = show(*communicator_, device_, index_, memory_, last);
  if (shown) record_ = {.memory = *shown, .able = 1};
}

std::shared_ptr<Operation> StreamMessage::answer(int peer) {
  Call one{.collective = sends() ? Collective::kRecv : Collective::kSend,
           .root = peer,
           .tag = call_.tag};
  one.timeout = call_.timeout;
  one.precedes = std::make_shared<const Call>(call_);
  (sends() ? one.output : one.input) = bytes_of(moved_);
  return communicator_->prepare_slice(first_, std::move(one), kAnswer, sizeof moved_);
}

std::shared_ptr<Operation> StreamMessage::refusal() { return answer(call_.root); }

bool StreamMessage::run(const std::shared_ptr<Operation>& operation) const {
  communicator_->launch({&operation, 1}, /*waited_for=*/true);
  communicator_->engine().wait_long([&] { return operation->done(); });
  return operation->error() == nullptr;
}

bool StreamMessage::move() {
  if (!run(first_)) return false;
  const int peer = sends() ? call_.root : first_->source();
  if (!sends()) moved_ = read(record_, peer) ? 1 : 0;
  return run(answer(peer)) && moved_ != 0;
}

// False also if the group has failed.
bool StreamMessage::read(const Record& told, int source) {
  if (told.memory.bytes != memory_.bytes) {
    const Claim mine{communicator_->number_of(communicator_->rank()), Claim::kExpects,
                     first_->fingerprint(), memory_.bytes};
    const Claim theirs{communicator_->number_of(source), Claim::kSent, first_->fingerprint(),
                       told.memory.bytes};
    communicator_->engine().abort(
        *communicator_,
        {ErrorCode::kMismatch,
         disagreement(communicator_->name(), first_->number(), mine, theirs, false, ""), source});
    return false;
  }
  if (told.able == 0 || stream_ == 0) return false;
  const auto there = reach(*communicator_, device_, index_, told.memory, source);
  if (!there) return false;
  auto error = device_.copy_within(index_, memory_.begin, there->begin, memory_.bytes, stream_);
  if (!error) error = device_.synchronize(index_, stream_);
  if (!error) return true;
  communicator_->abort(first_->describe() + " failed: " + error->message);
  return false;
}

}  // namespace hccl_like
