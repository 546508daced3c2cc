// Calls in stream order, and calls on a stream that captures a graph.
#include <chrono>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "process_group/device/plugin_streams.h"
#include "process_group/issue/issuer.h"
#include "process_group/staging/call_sides.h"

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

// Depends only on what ranks share if their devices are alike.
bool Issuer::may_be_small(const Issue& issue, const Group& group, const DeviceAccess& access) {
  if (issue.requests.size() != 1 || access.direct() || access.plugin() == nullptr) return false;
  const Request& request = issue.requests.front();
  if (request.collective != Collective::kAllReduce || request.input.tensors.size() != 1)
    return false;
  const size_t bytes = request.input.tensors.front().nbytes();
  const Communicator& communicator = *group.communicator_of(issue);
  return bytes > 0 && bytes <= HCD_SMALL_BYTES && communicator.device_mix() == DeviceMix::kAlike &&
         SmallCalls::may_serve(*access.plugin(), communicator.topology().hosts,
                               communicator.path_options(request.collective));
}

// False if kernels do not make the call.
bool Issuer::in_kernel(Issue& issue, const Group& group, const DeviceAccess& access, Work& work) {
  if (!may_be_small(issue, group, access)) return false;
  const c10::DeviceGuard device_guard(access.device());
  const auto& communicator = group.communicator_of(issue);
  const Request& request = issue.requests.front();
  Call call = bare_call(request);
  call.timeout = call_timeout(issue);
  const auto sizes = [&](const Side& side) {
    const DeviceSide all(side, side.tensors.vec(), communicator->rank(), communicator->size());
    return CallSides::sizes(all, call.type);
  };
  call.input = sizes(request.input);
  call.output = sizes(request.output);
  std::unique_lock lock(mutex_);
  const auto calls = staging(group, access).small(communicator, call).calls;
  lock.unlock();  // an abort ends the wait
  if (!calls->takes_next(call)) return false;
  lock.lock();
  if (group_locked().session != group.session)
    throw_misuse("this process group ended while other threads made calls");
  Stagings::Small& small = staging(group, access).small(communicator, call);
  const c10::Stream current = access.current_stream();
  const Route route = this->route(issue, group, access);
  const auto pending = std::make_shared<Pending>(Pending::Kind::kHost, group.session, communicator);
  auto end = std::make_shared<c10::Event>(current.device_type());
  order(current, route.end);
  {
    const c10::StreamGuard guard(route.end);
    CallSides sides;
    (void)sides.set(request, communicator->rank(), communicator->size());
    for (at::Tensor& memory : sides.pack(access.device(), /*exchanges=*/false))
      pending->hold_temporary(std::move(memory));
    // On the caller's own stream, stream order protects the tensors.
    if (route.end != current) pending->hold(request.input.tensors);
    if (route.end != current) pending->hold(request.output.tensors);
    if (route.end == current) pending->hold_weakly(request.output.tensors);
    if (small.end && small.stream != route.end) small.end->block(route.end);
    pending->add(calls->queue(std::move(call), *sides.input.range(), *sides.output.range(),
                              PluginStreams(access.device(), access.plugin()).current().value()));
    copy_all(sides.copies_back, /*non_blocking=*/true);
    if (issue.check) issue.check->copy_in_stream();
    end->record(route.end);
    small.end = end;
    small.stream = route.end;
  }
  pending_.push_back(pending);
  pending->set_end(end);
  watch_result(issue, *pending);
  diagnosis_.launching(issue, pending);
  pending->launch(/*waited_for=*/false);
  diagnosis_.launched(issue, group.session->completer(), pending);  // may finish it from now on
  take_in_time(issue, group, pending);
  work.set_pending(pending, pending->sequence());
  work.set_stream(route.end, route.end == current ? nullptr : std::move(end));
  work.end_record();
  return true;
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
