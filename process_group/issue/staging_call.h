#pragma once
// One call in a Staging: the work of each stage. Part of the staging*.cc files.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "process_group/calls/buffers.h"
#include "process_group/device/device_attempt.h"
#include "process_group/issue/staging.h"
#include "process_group/staging/copy_queue.h"

namespace hccl_like {

inline Region region_of(const at::Tensor& memory) {
  if (!memory.defined()) return {};
  return {static_cast<std::byte*>(memory.data_ptr()), memory.nbytes()};
}

class Staging::Call : public CallSides {
 public:
  explicit Call(const DeviceAccess& its_access) : access(its_access) {}

  static constexpr Part kAll{0, std::numeric_limits<size_t>::max()};

  const DeviceAccess& access;
  hccl_like::Call bare;  // without memory
  Slices cut;
  size_t first_slot = 0;
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Pending> pending;
  std::optional<DeviceEvent> begin;            // copies wait for it; null: no wait is needed
  std::optional<DeviceSlices::Places> places;  // of slices moved by network cards
  // Memory for all slices at once, if copies of parts are expensive.
  struct Whole {
    StagingMemory input, output;
    std::vector<Region> input_places, output_places;
  };
  std::optional<Whole> whole;
  std::unique_ptr<StreamExecution> streamed;  // null: streams cannot make the call
  std::unique_ptr<StreamMessage> message;     // the same for messages
  bool by_stream = false;                     // all ranks leave the call to streams
  uint32_t reserved = 0;                      // first number of the slices, with `streamed`
  std::vector<Slice> slices;
  // Of the first of several calls, in as many Stagings, that make a request (host_phases.h).
  std::optional<Comparison> comparison;
  std::shared_ptr<Call> next;  // launched at the end of this one; null if it is the last
  Staging* next_staging = nullptr;

  size_t bytes() const { return std::max(input.bytes(kAll), output.bytes(kAll)); }
  bool in_stream() const { return access.large_stream_ordered(); }
  const at::Tensor& staged_input(const Slice& slice) const {
    return whole ? whole->input.tensor : slice.slot->input.tensor;
  }
  const at::Tensor& staged_output(const Slice& slice) const {
    if (in_place) return staged_input(slice);
    return whole ? whole->output.tensor : slice.slot->output.tensor;
  }
  Part copied(const Slice& slice) const { return whole ? kAll : slice.part; }

  // --- each on the thread of its stage ---
  // `queue` makes the thread's CopyQueue at first use and may throw. find_direct() precedes all
  // copies.
  void copy_in(const Slice& slice, auto&& queue, auto&& find_direct) {
    const bool first = &slice == &slices.front();
    const bool begins = in_stream() && first;
    if (!(reads || first) || (whole && !first) || slice.direct || pending->failing()) return;
    guarded(slice, "to", [&] {
      const auto start = [&] {
        if (begin) queue().wait_for(*begin);
        queue().wait();
      };
      if (begins) {  // the call's duration begins when the stream gets here
        start();
        pending->begin();
      }
      if (first) find_direct(start);
      if (!reads || slice.direct) return;
      const CopyQueue& copies = queue();
      if (begin && first) copies.wait_for(*begin);
      const bool has_own = bare.collective == Collective::kAllToAll;
      input.to_host(copies, staged_input(slice), copied(slice),
                    has_own ? own_chunk(copies) : std::nullopt);
      copies.wait();
    });
  }
  void launch_comparison() {
    if (comparison)
      comparison->operation->communicator().launch({&comparison->operation, 1},
                                                   /*waited_for=*/true);
  }
  // Slices that take numbers of their own: all ranks know their number only if they are alike.
  uint32_t numbered() const {
    return cut.kind == Slices::Kind::kAlike ? static_cast<uint32_t>(cut.count) : 1;
  }
  // On the first stage's thread. False if the slices have to be prepared.
  bool start_stream() {
    if (message) return by_stream = move_message();
    by_stream = streamed->agree();
    if (!by_stream) return false;
    streamed->queue(std::move(begin));
    begin.reset();
    communicator->skip(reserved, numbered());
    return true;
  }
  bool move_message() {
    if (begin) {
      const auto error = access.plugin()->synchronize(access.plugin_index(), *begin);
      if (error) fail(*message->first(), error->message);
    }
    if (in_stream()) pending->begin();
    try {
      return message->move();
    } catch (const Exception& error) {  // the group has failed
      pending->fail(error.error());
      return false;
    }
  }
  // On the second stage's thread.
  void finish_stream() {
    if (message) return;
    streamed->await_begin();
    if (in_stream()) pending->begin();
    if (auto error = streamed->finish()) pending->fail(std::move(*error));
  }
  // On the last stage's thread.
  void end_stream(auto&& queue) {
    try {
      if (!pending->failing()) make_copies_back();
    } catch (const std::exception& error) {
      fail(*(message ? message->first() : streamed->exchange()),
           "the device did not copy its result: " + words_of(error));
    }
    if (in_stream() && pending->failing()) spoil(queue);
  }
  // Launches failed calls too; they end at once. Slices without a copy in launch early.
  void communicate(Slice& slice) {
    const auto from = static_cast<size_t>(&slice - slices.data());
    for (size_t i = from; i < std::min(from + kSlots, slices.size()); ++i) {
      if (i > from && !slices[i].direct && !whole) continue;
      if (std::exchange(slices[i].launched, true)) continue;
      communicator->launch(slices[i].operations, /*waited_for=*/true);
    }
    communicator->engine().wait(slice.operations, Deadline::never());
  }
  void copy_out(const Slice& slice, auto&& queue) {
    const bool last = &slice == &slices.back();
    if (last && places) flush();
    if (whole && !last) return;
    const auto any_failed = [&] {
      return std::ranges::any_of(slices, [&](const Slice& one) { return failed(one); });
    };
    const bool copies = writes && !slice.direct;
    if (!(whole ? any_failed() : failed(slice)) && (copies || (last && !copies_back.empty())))
      copy_result(slice, queue, copies);
    if (last && in_stream() && any_failed()) spoil(queue);
  }
  void end() {
    if (comparison)
      comparison->operation->communicator().engine().wait(*comparison->operation,
                                                          Deadline::never());
    // Releases memory before end_slices(), because the waiting thread may reuse it at once.
    input = output = {};
    places.reset();
    streamed.reset();
    message.reset();
    whole.reset();
    fresh.clear();
    copies_back.clear();
    begin.reset();
    if (next) next_staging->launch(std::exchange(next, nullptr));
    pending->end_slices();
  }
  // ---

 private:
  bool failed(const Slice& slice) const {
    const auto has_failed = [](const auto& operation) { return operation->error() != nullptr; };
    return pending->failing() || std::ranges::any_of(slice.operations, has_failed);
  }

  // The number of a chunk that the device copies, so that only the others pass through the host.
  std::optional<size_t> own_chunk(const CopyQueue& copies) const {
    const bool has_own =
        bare.collective == Collective::kAllGather || bare.collective == Collective::kAllToAll;
    if (!has_own || !copies.can_copy_within()) return std::nullopt;
    return static_cast<size_t>(communicator->rank());
  }

  // Makes data written by network cards visible to later work on the device.
  void flush() {
    const auto error = access.plugin()->flush(access.plugin_index());
    if (error)
      fail(named(slices.back()),
           "the device did not take what network cards wrote: " + error->message);
  }

  void copy_result(const Slice& slice, auto&& queue, bool writes_output) {
    guarded(slice, "from", [&] {
      const CopyQueue& copies = queue();
      if (begin && (whole || &slice == &slices.front())) copies.wait_for(*begin);
      if (writes_output) {
        const auto own = own_chunk(copies);
        if (own) input.give(copies, output, *own, copied(slice));
        output.to_device(copies, staged_output(slice), copied(slice), own);
      }
      copies.wait();
      if (&slice == &slices.back()) make_copies_back();
    });
  }

  void make_copies_back() {
    if (copies_back.empty()) return;
    copy_all(copies_back, /*non_blocking=*/false);
    access.synchronize_current_stream();
  }

  // Uses host memory: allocating device memory might wait for the stream that waits for this call.
  void spoil(auto&& queue) {
    size_t most = 0;
    for (size_t i = 0; i < cut.count; ++i) most = std::max(most, output.bytes(cut.part(i)));
    if (most == 0) return;
    try {
      std::vector<uint8_t> spoilt(most, byte_that_spoils(bare.type == DataType::kBool));
      const at::Tensor memory =
          at::from_blob(spoilt.data(), {static_cast<int64_t>(most)}, at::kByte);
      const CopyQueue& copies = queue();
      if (begin) copies.wait_for(*begin);
      for (size_t i = 0; i < cut.count; ++i) output.to_device(copies, memory, cut.part(i));
      copies.wait();
    } catch (const std::exception& error) {
      log_warn("what a call that failed has written could not be made unusable: " +
               words_of(error));
    }
  }

  // A failed copy aborts the group, because other ranks would receive slices without data.
  void guarded(const Slice& slice, const char* direction, auto&& copy) {
    try {
      copy();
    } catch (const std::exception& error) {
      fail(named(slice), std::string("the device did not copy ") + direction +
                             " staging memory: " + words_of(error));
    }
  }

  const Operation& named(const Slice& slice) const {
    return *(slice.operations.empty() ? slices.front() : slice).operations.front();
  }

  void fail(const Operation& operation, const std::string& why) {
    const std::string reason = operation.describe() + " failed: " + why;
    pending->fail({ErrorCode::kDevice, reason});
    communicator->abort(reason);
  }
};

}  // namespace hccl_like
