// Messages in device memory, by network cards that can access it.
#include <algorithm>

#include "collectives/engine/communicator.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {
namespace {

// Bytes of a step's consecutive chunks in one slice, and whether they are contiguous.
struct Reach {
  size_t bytes = 0;
  bool one_piece = true;
};
Reach reach_of(const Layout& layout, Slot first, uint32_t count, uint32_t slice, uint32_t slices) {
  Reach reach;
  const std::byte* end = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t chunk = first.index + i;
    const Part part = slice_part(layout.bytes(chunk), layout.element_bytes(), slice, slices);
    layout.visit(chunk, part.begin, part.end, [&](Region region) {
      reach.one_piece = reach.one_piece && (end == nullptr || end == region.data);
      end = region.data + region.bytes;
      reach.bytes += region.bytes;
    });
  }
  return reach;
}

bool is_in_place(const Layout& input, const Layout& output, size_t chunk) {
  const Region from = input.contiguous(chunk, 0, input.bytes(chunk));
  const Region to = output.contiguous(chunk, 0, output.bytes(chunk));
  return from.data == to.data && from.bytes == to.bytes &&
         (from.data != nullptr || from.bytes == 0);
}

}  // namespace

bool Communicator::reaches_devices() const {
  return std::ranges::any_of(
      identity_.links, [](const Link* link) { return link != nullptr && link->reaches_devices(); });
}

bool Communicator::prepare_memory(const std::byte* data, size_t bytes) {
  bool any = false, all = true;
  engine_.run([&] {
    for (Link* link : identity_.links) {
      if (link == nullptr || !link->reaches_devices()) continue;
      any = true;
      all = all && link->prepare(data, bytes);
    }
  });
  return any && all;
}

std::optional<std::vector<uint32_t>> Communicator::may_use_device_memory(
    const Operation& operation, const Layout& input, const Layout& output) const {
  const Call& call = operation.call_;
  const Plan& plan = operation.plan_;
  if (plan.path != CallPath::kMessages || plan.codec != nullptr || reduces(call.collective) ||
      call.root == kAnySource)
    return std::nullopt;
  const Schedule& schedule = plan.program->schedule;
  const bool cuts = cuts_payload(call.collective);
  const Layout in = cuts ? Layout(input).recut(schedule.chunks()) : input;
  const Layout out = cuts ? Layout(output).recut(schedule.chunks()) : output;
  const auto layout_of = [&](Slot slot) -> const Layout& {
    return slot.buffer == Buffer::kInput ? in : out;
  };
  std::vector<uint32_t> copied;
  for (const Step& step : schedule.steps()) {
    const bool sends = step.kind == Step::Kind::kSend;
    if (step.kind == Step::Kind::kCopy) {
      if (step.a.buffer != Buffer::kInput || step.dst.buffer != Buffer::kOutput ||
          step.a.index != step.dst.index)
        return std::nullopt;
      for (uint32_t chunk = step.a.index; chunk < step.a.index + step.count; ++chunk) {
        if (is_in_place(in, out, chunk)) continue;
        if (cuts) return std::nullopt;  // only this rank knows these chunks
        copied.push_back(chunk);
      }
      continue;
    }
    if (!sends && step.kind != Step::Kind::kRecv) return std::nullopt;
    const Slot slot = sends ? step.a : step.dst;
    if (slot.buffer == Buffer::kScratch || step.peer < 0 || step.peer == rank())
      return std::nullopt;
    const Link* const link = identity_.links[static_cast<size_t>(step.peer)];
    if (!link->reaches_devices()) return std::nullopt;
    // The sender may stage data that this rank does not, and must have it contiguous all the same.
    if (step.count > 1 && !(cuts && plan.slices == 1)) return std::nullopt;
    for (uint32_t slice = 0; slice < plan.slices; ++slice) {
      const Reach reach = reach_of(layout_of(slot), slot, step.count, slice, plan.slices);
      const bool goes = reach.bytes == 0 || reach.bytes >= kLeastRendezvous;
      if (!goes || (sends && !reach.one_piece)) return std::nullopt;
    }
  }
  return copied;
}

void Communicator::use_device_memory(Operation& operation, Layout input, Layout output) {
  Call& call = operation.call_;
  call.input = std::move(input);
  call.output = std::move(output);
  call.in_device = true;
  call.shared_input.reset();
  call.shared_regions.reset();
  call.shared_output.reset();
}

}  // namespace hccl_like
