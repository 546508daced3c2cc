#include "collectives/engine/operation.h"

#include "collectives/engine/communicator.h"
#include "collectives/same_host/large_call.h"

namespace hccl_like {

Operation::~Operation() = default;

Operation::Operation(std::shared_ptr<Communicator> communicator, Call call, Plan plan,
                     uint32_t sequence)
    : communicator_(std::move(communicator)),
      call_(std::move(call)),
      plan_(plan),
      sequence_(sequence),
      bytes_(payload_bytes(named(call_))),
      source_(call_.collective == Collective::kRecv ? call_.root : kAnySource) {}

std::string Operation::describe() const {
  std::string text = (begun_by_ ? *begun_by_ : *this).describe_whole();
  if (call_.slice.count > 1)
    text += ", slice " + std::to_string(call_.slice.number + 1) + " of " +
            std::to_string(call_.slice.count) + " through the host";
  if (!begun_by_ || plan_.channel != kSlicesOfCollectives) return text;
  return text + (call_.collective == Collective::kSend ? " to rank " : " from rank ") +
         std::to_string(communicator_->number_of(call_.root));
}

std::string Operation::describe_whole() const {
  const Call& call = named(call_);
  std::string text = std::string(name(call.collective)) + " #" + std::to_string(number());
  if (call.collective == Collective::kBarrier) return text;
  text += " (" + std::string(name(call.type));
  if (reduces(call.collective)) text += ", " + std::string(name(call.op));
  text += ", " + std::to_string(bytes_) + " bytes";
  if (call.collective == Collective::kSend)
    text += ", to rank " + std::to_string(communicator_->number_of(call.root));
  if (call.collective == Collective::kRecv)
    text += call.root == kAnySource
                ? ", from any rank"
                : ", from rank " + std::to_string(communicator_->number_of(call.root));
  if (call.part_of)
    text += ", part of " + std::string(name(*call.part_of)) + " #" + std::to_string(number());
  return text + ")";
}

}  // namespace hccl_like
