// Calls on a stream that captures a graph.
#include <chrono>
#include <utility>

#include <c10/core/DeviceGuard.h>

#include "process_group/issue/issuer.h"

namespace hccl_like {

// The call is over when it is captured: what a replay does is the graph's.
void Issuer::in_graph(const Issue& issue, const Group& group, const DeviceAccess& access,
                      Work& work) {
  const c10::DeviceGuard device_guard(access.device());
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<CapturedCalls> calls;
  {
    std::lock_guard lock(mutex_);
    auto& of_device = captured_[access.device().index()];
    if (!of_device)
      of_device = std::make_shared<CapturedCalls>(group.session->devices(), access,
                                                  group.communicator_of(issue));
    calls = of_device;
  }
  uint32_t sequence = 0;
  for (const Request& request : issue.requests)
    sequence = calls->capture(request, call_timeout(issue));
  const auto pending =
      std::make_shared<Pending>(begin, std::chrono::steady_clock::now() - begin, /*source=*/-1);
  diagnosis_.launching(issue, pending);
  diagnosis_.launched(issue, group.session->completer(), pending);
  work.set_pending(pending, sequence);
  std::shared_ptr<c10::Event> end;
  const c10::Stream current = access.current_stream();
  if (issue.async) {
    end = std::make_shared<c10::Event>(current.device_type());
    end->record(current);
  }
  work.set_stream(current, std::move(end));
  work.end_record();
}

}  // namespace hccl_like
