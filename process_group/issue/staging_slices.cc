// The operations of a staged call: of each slice, or of its messages.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "process_group/calls/sharing.h"
#include "process_group/issue/staging_call.h"

namespace hccl_like {
namespace {

// Returns an undefined tensor for 0 bytes.
at::Tensor narrowed(const at::Tensor& memory, size_t begin, size_t bytes) {
  if (bytes == 0) return {};
  return memory.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(bytes));
}

}  // namespace

void Staging::prepare_slices(Call& call) {
  for (size_t number = 0; number < call.cut.count; ++number) {
    call.slices.push_back({.part = call.cut.part(number),
                           .slot = &slots_[(call.first_slot + number) % kSlots],
                           .operations = {},
                           .roles = {}});
  }
  for (size_t number = 0; number < call.cut.count; ++number) {
    Slice& slice = call.slices[number];
    if (!call.message && (number == 0 || call.cut.kind == Slices::Kind::kAlike)) {
      slice.operations.push_back(call_of(call, number, slice));
      slice.roles.push_back({});
    } else {
      slice.operations = messages_of(call, number, slice);
    }
    for (const auto& operation : slice.operations) call.pending->add_slice(operation);
  }
}

std::shared_ptr<Operation> Staging::call_of(const Call& call, size_t number, const Slice& slice) {
  hccl_like::Call one = call.bare;
  one.slice = {.number = static_cast<uint32_t>(number),
               .count = static_cast<uint32_t>(call.cut.count),
               .bytes = call.bytes(),
               .alike = call.cut.kind == Slices::Kind::kAlike && call.cut.count > 1};
  const size_t element = size_of(one.type);
  // Returns the part of a side that is contiguous, if any.
  const auto lay = [&](const DeviceSide& side, const at::Tensor& memory,
                       const std::vector<Region>* places, Layout& layout) -> at::Tensor {
    if (places == nullptr) {
      const at::Tensor piece = narrowed(memory, 0, side.bytes(slice.part));
      layout = side.layout(region_of(piece), slice.part, element);
      return piece;
    }
    layout = side.layout(*places, slice.part, element);
    return places->size() == 1 ? narrowed(memory, slice.part.begin, side.bytes(slice.part))
                               : at::Tensor();
  };
  const auto* const whole = call.whole ? &*call.whole : nullptr;
  const at::Tensor in =
      lay(call.input, call.staged_input(slice), whole ? &whole->input_places : nullptr, one.input);
  const at::Tensor out = lay(call.output, call.staged_output(slice),
                             whole ? &whole->output_places : nullptr, one.output);
  if (worth_sharing(*call.communicator, host_, one))
    share(host_, in.defined() ? &in : nullptr, out.defined() ? &out : nullptr, one);
  std::optional<uint32_t> reserved;
  if (call.streamed) reserved = call.reserved + static_cast<uint32_t>(number);
  return call.communicator->prepare(std::move(one), reserved);
}

std::vector<std::shared_ptr<Operation>> Staging::messages_of(const Call& call, size_t number,
                                                             Slice& slice) {
  std::vector<std::shared_ptr<Operation>> operations;
  for (const bool sends : {false, true}) {
    const at::Tensor& memory = sends ? call.staged_input(slice) : call.staged_output(slice);
    const DeviceSide& side = sends ? call.input : call.output;
    for (const auto& message : side.messages(call.cut, number, call.bare.root)) {
      hccl_like::Call one{.collective = sends ? Collective::kSend : Collective::kRecv,
                          .type = call.bare.type,
                          .root = message.peer,
                          .tag = call.bare.tag,
                          .number = call.bare.number,
                          .slice = {.number = static_cast<uint32_t>(number),
                                    .count = static_cast<uint32_t>(call.cut.count)},
                          .timeout = call.bare.timeout};
      size_t begin = message.begin;
      if (call.whole) {
        const auto& places = sends ? call.whole->input_places : call.whole->output_places;
        const Region there = side.place(places, message.chunk, slice.part);
        begin = static_cast<size_t>(there.data - region_of(memory).data);
      }
      const at::Tensor part = narrowed(memory, begin, message.bytes);
      (sends ? one.input : one.output) = Layout::even(region_of(part), 1, size_of(call.bare.type));
      if (part.defined() && worth_sharing(*call.communicator, host_, one))
        share(host_, sends ? &part : nullptr, sends ? nullptr : &part, one);
      slice.roles.push_back({.kind = sends ? SliceRole::Kind::kSend : SliceRole::Kind::kRecv,
                             .chunk = message.chunk,
                             .peer = message.peer});
      operations.push_back(
          call.message
              ? call.communicator->prepare_slice(call.message->first(), std::move(one),
                                                 StreamMessage::slice_number(number), message.whole)
              : call.communicator->prepare_slice(call.slices.front().operations.front(),
                                                 std::move(one), static_cast<uint32_t>(number),
                                                 message.whole));
    }
  }
  return operations;
}

}  // namespace hccl_like
