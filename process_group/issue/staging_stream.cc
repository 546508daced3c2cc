// Calls that streams of the devices make: the sides and the call of each.
#include <utility>
#include <vector>

#include "process_group/calls/buffers.h"
#include "process_group/issue/staging_call.h"

namespace hccl_like {
bool Staging::may_use_streams(const DeviceAccess& access, const Hosts& hosts,
                              const CallPathOptions& options, Collective collective) {
  if (access.direct() || access.plugin() == nullptr ||
      (access.stream_ordered() && !access.copies_beside_streams()))
    return false;
  return is_point_to_point(collective)
             ? StreamMessage::may_serve(*access.plugin(), hosts, options)
             : StreamExecutor::may_serve(*access.plugin(), hosts, options, collective);
}

Staging::Comparison Staging::compare(const Request& request, std::chrono::milliseconds timeout,
                                     Communicator& communicator) {
  hccl_like::Call whole = bare_call(request);
  whole.timeout = timeout;
  const auto ranks = static_cast<size_t>(communicator.size());
  const auto lay = [&](const Side& side) {
    const DeviceSide sizes(side, side.tensors.vec(), communicator.rank(), communicator.size());
    return CallSides::sizes(sizes, request.type);
  };
  whole.input = lay(request.input);
  whole.output = lay(request.output);
  Comparison comparison{.operation = nullptr, .records = std::vector<std::byte>(ranks + 1)};
  std::byte* const records = comparison.records.data();
  comparison.operation =
      communicator.prepare_exchange(std::move(whole), {records + ranks, 1}, {records, ranks});
  return comparison;
}

// The numbers of the slices are taken, too: they take part if a rank cannot use streams.
void Staging::prepare_stream(Call& call) {
  const Device& device = *access_.plugin();
  if (is_point_to_point(call.bare.collective)) return prepare_message(call);
  if (!executor_)
    executor_ = std::make_unique<StreamExecutor>(call.communicator, device, access_.plugin_index(),
                                                 *host_.plugin(), streams_.current().value_or(0));
  hccl_like::Call whole = call.bare;
  whole.input = CallSides::sizes(call.input, whole.type);
  whole.output = CallSides::sizes(call.output, whole.type);
  call.streamed = std::make_unique<StreamExecution>(*executor_, std::move(whole),
                                                    *call.input.range(), *call.output.range());
  call.pending->add_slice(call.streamed->exchange());
  call.reserved = call.communicator->reserve(call.numbered());
}

void Staging::prepare_message(Call& call) {
  const Device& device = *access_.plugin();
  const int index = access_.plugin_index();
  if (message_stream_.get() == 0)
    message_stream_ = device.make_stream(index, streams_.current().value_or(0)).value();
  const bool sends = call.bare.collective == Collective::kSend;
  hccl_like::Call whole = call.bare;
  (sends ? whole.input : whole.output) =
      CallSides::sizes(sends ? call.input : call.output, whole.type);
  call.message = std::make_unique<StreamMessage>(call.communicator, device, index,
                                                 message_stream_.get(), std::move(whole),
                                                 *(sends ? call.input : call.output).range());
  call.pending->add_slice(call.message->first());
}

// On the first stage's thread.
void Staging::prepare_late(Call& call) {
  try {
    prepare_slices(call);
  } catch (const Exception& error) {  // the group has failed
    call.pending->fail(error.error());
  }
}

}  // namespace hccl_like
