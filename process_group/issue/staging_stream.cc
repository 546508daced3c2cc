// Calls that streams of the devices make: the sides and the call of each.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <limits>
#include <utility>
#include <vector>

#include "process_group/calls/buffers.h"
#include "process_group/issue/staging_call.h"

namespace hccl_like {
namespace {

// A layout of which only the sizes matter.
Layout sizes_of(const DeviceSide& side, size_t element_bytes) {
  constexpr uintptr_t kAnyAddress = 64;
  constexpr Part kAll{0, std::numeric_limits<size_t>::max()};
  return side.layout({reinterpret_cast<std::byte*>(kAnyAddress), side.bytes(kAll)}, kAll,
                     element_bytes);
}

}  // namespace

bool Staging::may_use_streams(const DeviceAccess& access, const Hosts& hosts,
                              const CallPathOptions& options, Collective collective) {
  return !access.direct() && access.plugin() != nullptr &&
         (!access.stream_ordered() || access.copies_beside_streams()) &&
         StreamExecutor::may_serve(*access.plugin(), hosts, options, collective);
}

// Makes each side one range of device memory, apart from the other or the same.
void Staging::pack_sides(Call& call, bool exchanges) {
  const auto packed = [&](const DeviceSide& side, bool fill, bool copy_back) {
    const at::Tensor memory =
        at::empty({static_cast<int64_t>(side.bytes(Call::kAll))},
                  at::TensorOptions().dtype(at::kByte).device(access_.device()));
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (const auto& [piece, own] : side.pieces_in(memory)) {
      if (fill) piece.copy_(own);
      if (copy_back) call.copies_back.emplace_back(own, piece);
    }
    call.pending->hold_temporary(memory);
    return memory;
  };
  const auto in = call.input.range(), out = call.output.range();
  const bool one_range = in && out, overlap = one_range && in->overlaps(*out);
  if (call.in_place && !one_range) {
    const at::Tensor memory = packed(call.input, call.reads, call.writes);
    call.input = call.input.packed_in(memory);
    call.output = call.output.packed_in(memory);
  } else if (!call.in_place) {
    if (!in || (exchanges ? overlap : !call.input.may_be_overwritten_by(call.output)))
      call.input = call.input.packed_in(packed(call.input, call.reads, false));
    if (!out) call.output = call.output.packed_in(packed(call.output, false, call.writes));
  }
}

Staging::Comparison Staging::compare(const Request& request, std::chrono::milliseconds timeout,
                                     Communicator& communicator) {
  hccl_like::Call whole = bare_call(request);
  whole.timeout = timeout;
  const auto ranks = static_cast<size_t>(communicator.size());
  const auto lay = [&](const Side& side) {
    const DeviceSide sizes(side, side.tensors.vec(), communicator.rank(), communicator.size());
    return sizes_of(sizes, size_of(request.type));
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
  if (!executor_)
    executor_ = std::make_unique<StreamExecutor>(call.communicator, device, access_.plugin_index(),
                                                 *host_.plugin(), streams_.current().value_or(0));
  hccl_like::Call whole = call.bare;
  whole.input = sizes_of(call.input, size_of(whole.type));
  whole.output = sizes_of(call.output, size_of(whole.type));
  call.streamed = std::make_unique<StreamExecution>(*executor_, std::move(whole),
                                                    *call.input.range(), *call.output.range());
  call.pending->add_slice(call.streamed->exchange());
  call.reserved = call.communicator->reserve(call.numbered());
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
