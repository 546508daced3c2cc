#include "collectives/operation.h"

#include "collectives/communicator.h"
#include "collectives/direct/direct_run.h"

namespace hccl_like {

Operation::~Operation() = default;

Operation::Operation(std::shared_ptr<Communicator> communicator, Call call, Plan plan,
                     uint32_t sequence)
    : communicator_(std::move(communicator)),
      call_(std::move(call)),
      plan_(plan),
      sequence_(sequence),
      bytes_(std::max(call_.input.total_bytes(), call_.output.total_bytes())),
      source_(call_.collective == Collective::kRecv ? call_.root : kAnySource) {}

std::string Operation::describe() const {
  std::string text = std::string(name(call_.collective)) + " #" + std::to_string(sequence_);
  if (call_.collective == Collective::kBarrier) return text;
  text += " (" + std::string(name(call_.type));
  if (plan_.reduction.valid()) text += ", " + std::string(name(call_.op));
  text += ", " + std::to_string(bytes_) + " bytes";
  if (call_.collective == Collective::kSend) text += ", to rank " + std::to_string(call_.root);
  if (call_.collective == Collective::kRecv)
    text +=
        call_.root == kAnySource ? ", from any rank" : ", from rank " + std::to_string(call_.root);
  return text + ")";
}

}  // namespace hccl_like
