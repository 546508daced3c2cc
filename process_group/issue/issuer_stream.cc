// Calls in stream order, and calls on a stream that captures a graph.
#include <chrono>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "process_group/issue/issuer.h"

namespace hccl_like {
namespace {

void order(const c10::Stream& first, const c10::Stream& then) {
  if (first == then) return;
  // One event for each use: not every device supports recording an event twice.
  c10::Event event(first.device_type());
  event.record(first);
  event.block(then);
}

}  // namespace

void Issuer::in_stream(Issue& issue, const Group& group, const DeviceAccess& access, Work& work) {
  const c10::DeviceGuard device_guard(access.device());
  const Cuts cuts = cuts_of(issue, group, access);
  const auto pending = std::make_shared<Pending>(Pending::Kind::kStream, group.session,
                                                 group.communicator_of(issue));
  StagedCalls staged;
  std::lock_guard lock(mutex_);
  const c10::Stream current = access.current_stream();
  const Route route = this->route(issue, group, access);
  order(current, route.begin);
  {
    const c10::StreamGuard guard(route.begin);
    // On the caller's own stream, stream order protects the tensors.
    const bool hold = route.end != current;
    if (cuts.empty()) {
      Buffers buffers(access, *group.communicator_of(issue), /*in_stream=*/true);
      prepare(issue, group, buffers, *pending, hold);
    } else {
      staged = prepare_staged(issue, group, access, cuts, staging(group, access), hold, pending);
    }
  }
  pending_.push_back(pending);
  diagnosis_.launching(issue, pending);
  try {
    if (route.begin == route.end) {
      access.host_function(route.begin, Pending::run, pending.get());
    } else {
      access.host_function(route.begin, Pending::start, pending.get());
      order(route.begin, route.end);
      access.host_function(route.end, Pending::join, pending.get());
    }
  } catch (const std::exception& error) {
    // Other ranks expect this call, which will not run.
    group.communicators->abort(std::string("the device did not take a call: ") + error.what());
    pending->fail({ErrorCode::kDevice, error.what()});
    for (auto& [staging, call] : staged) staging->launch(std::move(call));  // ends at once
    // Leaks the call: it never ends, and the device may still use a part of it.
    pending_.pop_back();
    new std::shared_ptr<Pending>(pending);
    throw;
  }
  for (auto& [staging, call] : staged) staging->launch(std::move(call));
  std::shared_ptr<c10::Event> end;
  {
    const c10::StreamGuard guard(route.end);
    copy_all(pending->copies_back(), /*non_blocking=*/true);
    if (issue.check) issue.check->copy_in_stream();
  }
  watch_result(issue, *pending);
  if (route.end != current || !pending->copies_back().empty() || issue.check) {
    end = std::make_shared<c10::Event>(current.device_type());
    end->record(route.end);
    pending->set_end(end);
  }
  diagnosis_.launched(issue, group.session->completer(), pending);  // may finish it from now on
  take_in_time(issue, group, pending);
  work.set_pending(pending, pending->sequence());
  work.set_stream(route.end, route.end == current ? nullptr : std::move(end));
  work.end_record();
}

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
