// Large calls on a device whose memory host code cannot address, and the streams of calls.
#include <algorithm>
#include <utility>

#include "collectives/engine/engine.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/issue/issuer.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {
// Depends only on request sizes and settings, which ranks that exchange a chunk share if their
// devices are alike; if these differ, no rank cuts a call. A call of one slice also uses a Staging
// where streams may make it, or where network cards may avoid its copies; of the latter, other
// ranks do not see the difference.
Issuer::Cuts Issuer::cuts_of(const Issue& issue, const Group& group, const DeviceAccess& access) {
  Cuts cuts;
  if (access.direct() || issue.requests.empty()) return cuts;
  if (access.stream_ordered() && !access.copies_beside_streams()) return cuts;
  const Communicator& communicator = *group.communicator_of(issue);
  if (communicator.size() == 1 || communicator.device_mix() != DeviceMix::kAlike) return cuts;
  // Plugins copy any part of a storage.
  if (access.plugin() == nullptr && !capabilities_of(access.device()).has(Feature::kOffsetCopies))
    return cuts;
  const bool direct = DeviceSlices::may_serve(access, communicator);
  const size_t most = bytes_of_slice(communicator.engine().config());
  for (const Request& request : issue.requests) {
    if (HostPhases::may_serve(access, communicator, request, most)) {
      cuts.push_back(Slices{.kind = Slices::Kind::kPhases});
      continue;
    }
    cuts.push_back(slices_of(request, communicator.size(), most));
    if (cuts.back()) continue;
    if (Staging::may_use_streams(access, communicator.topology().hosts,
                                 communicator.path_options(request.collective), request.collective))
      // Of a call with splits, each rank knows only its own sizes.
      cuts.back() = one_slice_of(request, communicator.size(), most,
                                 request.uneven ? 0 : StreamExecutor::kLeastChunk);
    else if (direct && !reduces(request.collective))
      cuts.back() = one_slice_of(request, communicator.size(), most, kLeastRendezvous);
  }
  if (std::ranges::none_of(cuts, [](const auto& slices) { return slices.has_value(); }))
    cuts.clear();
  return cuts;
}

bool Issuer::goes_in_stream(const Issue& issue, const Group& group, const DeviceAccess& access) {
  return access.large_stream_ordered() ||
         (access.stream_ordered() && cuts_of(issue, group, access).empty());
}

// With mutex_ held.
Stagings& Issuer::staging(const Group& group, const DeviceAccess& access) {
  auto& staging = stagings_[access.device().index()];
  if (!staging)
    staging =
        std::make_shared<Stagings>(group.session->devices(), access,
                                   bytes_of_slice(group.communicators->host()->engine().config()));
  return *staging;
}

// Requests without slices or without a Staging use temporaries of their own, in one piece.
Issuer::StagedCalls Issuer::prepare_staged(const Issue& issue, const Group& group,
                                           const DeviceAccess& access, const Cuts& cuts,
                                           Stagings& stagings, bool hold,
                                           const std::shared_ptr<Pending>& pending) {
  StagedCalls calls;
  bool waited = access.large_stream_ordered();
  Buffers buffers(access, *group.communicator_of(issue), /*in_stream=*/waited);
  size_t ends = 0;
  for (size_t i = 0; i < issue.requests.size(); ++i) {
    const Request& request = issue.requests[i];
    const auto& communicator = group.communicators->of(issue.device, request.collective);
    if (hold) {
      pending->hold(request.input.tensors);
      pending->hold(request.output.tensors);
    } else {
      pending->hold_weakly(request.output.tensors);
    }
    if (cuts[i] && cuts[i]->kind == Slices::Kind::kPhases) {
      HostPhases& phases = stagings.host_phases(communicator);
      for (auto& call : phases.prepare(request, call_timeout(issue), pending)) {
        calls.emplace_back(&phases.first(), std::move(call));
        ends += HostPhases::kPhases;
      }
      continue;
    }
    if (Staging* const staging = cuts[i] ? stagings.find(request) : nullptr) {
      calls.emplace_back(
          staging, staging->prepare(request, *cuts[i], call_timeout(issue), communicator, pending));
      ++ends;
      continue;
    }
    if (!std::exchange(waited, true)) access.synchronize_current_stream();
    Call call = buffers.call(request);
    call.timeout = call_timeout(issue);
    if (cuts[i] && is_message(request) &&
        Staging::may_use_streams(access, communicator->topology().hosts,
                                 communicator->path_options(request.collective),
                                 request.collective))
      prepare_refused(std::move(call), *cuts[i], access, communicator, *pending);
    else
      prepare_whole(std::move(call), cuts[i], communicator, *pending);
  }
  pending->hold(buffers);
  pending->expect_slices(ends);
  return calls;
}

// With mutex_ held.
Issuer::Route Issuer::route(const Issue& issue, const Group& group, const DeviceAccess& access) {
  if (!issue.async && !issue.blocking) return {access.current_stream(), access.current_stream()};
  Devices& devices = group.session->devices();
  Streams& streams = streams_[access.device().index()];
  if (issue.requests.size() != 1 || !is_message(issue.requests.front())) {
    if (!streams.collectives) streams.collectives = devices.take_stream(access);
    return {*streams.collectives, *streams.collectives};
  }
  const Request& message = issue.requests.front();
  if (!streams.messages) streams.messages = devices.take_stream(access);
  auto one = streams.per_peer.find({message.root, message.collective});
  if (one == streams.per_peer.end()) {
    one = streams.per_peer
              .emplace(std::pair(message.root, message.collective), devices.take_stream(access))
              .first;
  }
  return {*streams.messages, one->second};
}

std::shared_ptr<Pending> Issuer::launch_staged(const Issue& issue, const Group& group,
                                               const DeviceAccess& access, const Cuts& cuts,
                                               Work* work) {
  const auto pending = std::make_shared<Pending>(Pending::Kind::kStaged, group.session,
                                                 group.communicator_of(issue));
  {
    std::lock_guard lock(staging_mutex_);
    Stagings* stagings = nullptr;
    {
      std::lock_guard list_lock(mutex_);
      stagings = &staging(group, access);
    }
    auto calls = prepare_staged(issue, group, access, cuts, *stagings, /*hold=*/true, pending);
    watch_result(issue, *pending);
    if (work != nullptr) work->set_pending(pending, pending->sequence());
    if (issue.async) {
      std::lock_guard list_lock(mutex_);
      pending_.push_back(pending);
    }
    diagnosis_.launching(issue, pending);
    if (pending->launches()) {
      pending->begin();
      pending->launch(/*waited_for=*/!issue.async);
    }
    for (auto& [staging, call] : calls) staging->launch(std::move(call));
  }
  diagnosis_.launched(issue, group.session->completer(), pending);
  take_in_time(issue, group, pending);
  return pending;
}

// A message that its peer may want streams to move.
void Issuer::prepare_refused(Call call, const Slices& slices, const DeviceAccess& access,
                             const std::shared_ptr<Communicator>& communicator, Pending& pending) {
  const size_t bytes = std::max(call.input.total_bytes(), call.output.total_bytes());
  auto message =
      std::make_shared<StreamMessage>(communicator, *access.plugin(), access.plugin_index(),
                                      /*stream=*/0, call, DeviceRange{.begin = {}, .bytes = bytes});
  pending.add(message->first());
  pending.add(message->refusal());
  prepare_whole(std::move(call), slices, communicator, pending, message.get());
  pending.keep(std::move(message));
}

// Prepares all slices of a message at once, as its peer expects them. `refused`: the message if
// streams might have moved it.
void Issuer::prepare_whole(Call call, const std::optional<Slices>& slices,
                           const std::shared_ptr<Communicator>& communicator, Pending& pending,
                           const StreamMessage* refused) {
  if (!slices) return pending.add(communicator->prepare(std::move(call)));
  const bool sends = call.collective == Collective::kSend;
  const Layout payload = std::exchange(sends ? call.input : call.output, {});
  const size_t whole = payload.total_bytes();
  const auto shared = std::exchange(sends ? call.shared_input : call.shared_output, std::nullopt);
  std::shared_ptr<Operation> first = refused != nullptr ? refused->first() : nullptr;
  const uint32_t skipped = refused != nullptr ? StreamMessage::slice_number(0) : 0;
  for (size_t slice = 0; slice < slices->count; ++slice) {
    const size_t begin = std::min(whole, slices->part(slice).begin);
    const size_t end = std::min(whole, slices->part(slice).end);
    Call one = call;
    one.slice = {.number = static_cast<uint32_t>(slice),
                 .count = static_cast<uint32_t>(slices->count),
                 .bytes = whole};
    (sends ? one.input : one.output) =
        Layout::even(payload.contiguous(0, begin, end), 1, payload.element_bytes());
    if (shared)
      (sends ? one.shared_input : one.shared_output) = {shared->handle, shared->offset + begin};
    auto operation = first
                         ? communicator->prepare_slice(
                               first, std::move(one), static_cast<uint32_t>(slice) + skipped, whole)
                         : communicator->prepare(std::move(one));
    if (!first) first = operation;
    pending.add(std::move(operation));
  }
}

}  // namespace hccl_like
