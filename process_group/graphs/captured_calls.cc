#include "process_group/graphs/captured_calls.h"

#include <string>
#include <utility>

#include <c10/core/DeviceGuard.h>

#include "collectives/engine/engine.h"
#include "process_group/staging/call_sides.h"

namespace hccl_like {

CapturedCalls::CapturedCalls(Devices& devices, const DeviceAccess& access,
                             std::shared_ptr<Communicator> communicator)
    : access_(access),
      host_(devices.access(c10::kCPU)),
      streams_(access.device(), access.plugin()),
      communicator_(std::move(communicator)) {}

CapturedCalls::~CapturedCalls() {
  if (executor_) executor_->await_replays();
}

// Depends only on what ranks share if their devices are alike.
std::string CapturedCalls::why_not(const Request& request) const {
  const Device* const device = access_.plugin();
  const Hosts& hosts = communicator_->topology().hosts;
  if (request.collective == Collective::kBarrier || is_message(request))
    return "graphs have collectives that move tensors, no barrier, send or receive";
  if (hosts.size() == 1 && reduces(request.collective) && request.op == ReduceOp::kPreMulSum)
    return "in a group of one rank, no stream multiplies";
  if (communicator_->device_mix() != DeviceMix::kAlike)
    return "the ranks of its group have different devices";
  if (device == nullptr) return "the device has no plugin";
  if (!device->can_wait_on_words())
    return "the device's plugin has no stream_wait_value and stream_write_value";
  if (hosts.size() > 1 && hosts.count() > 1)
    return "its ranks are on " + std::to_string(hosts.count()) + " hosts";
  if (!StreamExecutor::may_serve(*device) ||
      (hosts.size() > 1 &&
       !StreamExecutor::may_serve(*device, hosts, communicator_->path_options(request.collective),
                                  request.collective)))
    return "the device's plugin, or a setting, keeps streams from making it (docs/devices.md)";
  return {};
}

StreamExecutor& CapturedCalls::executor(hcd_stream like) {
  if (!executor_)
    executor_ = std::make_unique<StreamExecutor>(communicator_, *access_.plugin(),
                                                 access_.plugin_index(), *host_.plugin(), like);
  return *executor_;
}

uint32_t CapturedCalls::capture(const Request& request, std::chrono::milliseconds timeout) {
  const c10::DeviceGuard guard(access_.device());
  const auto refuse = [&](const std::string& why) {
    throw_misuse(std::string(name(request.collective)) + " cannot be captured in a graph: " + why +
                 ". Make this call outside the capture");
  };
  if (const std::string why = why_not(request); !why.empty()) refuse(why);
  const std::lock_guard lock(mutex_);
  CallSides sides;
  (void)sides.set(request, communicator_->rank(), communicator_->size());
  (void)sides.pack(access_.device(), request.collective == Collective::kAllToAll);
  const hcd_stream stream = streams_.current().value();
  Call whole = bare_call(request);
  whole.timeout = timeout;
  whole.input = CallSides::sizes(sides.input, whole.type);
  whole.output = CallSides::sizes(sides.output, whole.type);
  auto call =
      std::make_unique<StreamExecution>(executor(stream), std::move(whole), *sides.input.range(),
                                        *sides.output.range(), StreamExecution::Use::kCaptured);
  const uint32_t sequence = call->exchange()->sequence();
  if (!call->agree()) {
    if (auto failure = communicator_->failure()) throw Exception(std::move(*failure));
    refuse(
        "a rank's plugin lacks the reduction, or cannot map the memory of another "
        "(HCCL_LIKE_DEBUG=INFO tells which)");
  }
  calls_.push_back(std::move(call));  // in any case: the graph may have a part of it
  if (auto error = calls_.back()->capture(stream)) throw Exception(std::move(*error));
  copy_all(sides.copies_back, /*non_blocking=*/true);
  return sequence;
}

}  // namespace hccl_like
