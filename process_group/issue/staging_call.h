#pragma once
// One call that goes through a Staging: what each of its stages does. Part of staging.cc.
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

class Staging::Call {
 public:
  explicit Call(const DeviceAccess& its_access) : access(its_access) {}

  static constexpr Part kAll{0, std::numeric_limits<size_t>::max()};

  const DeviceAccess& access;
  DataType type = DataType::kUInt8;
  Collective collective = Collective::kBarrier;
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Pending> pending;
  DeviceSide input, output;
  std::optional<DeviceEvent> begin;  // the copies come after it; nothing: after the call was issued
  bool in_place = false;  // both sides are the same tensors, and use the same staging memory
  bool reads = true;      // this rank's input is copied from the device
  bool writes = true;     // and its output to it
  std::optional<DeviceLaps::Places> places;  // of the laps that are not staged
  // Memory for all laps at once, where copies of parts are dear: the first lap copies everything
  // in, the last everything out.
  struct Whole {
    StagingMemory input, output;
    std::vector<Region> input_places, output_places;
  };
  std::optional<Whole> whole;
  std::vector<Lap> laps;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      fresh;           // a tensor that is not plain, and what stands for it
  Copies copies_back;  // to them, at the end

  // What all laps carry.
  size_t bytes() const { return std::max(input.bytes(kAll), output.bytes(kAll)); }
  bool in_stream() const { return access.stream_ordered(); }
  const at::Tensor& staged_input(const Lap& lap) const {
    return whole ? whole->input.tensor : lap.slot->input.tensor;
  }
  const at::Tensor& staged_output(const Lap& lap) const {
    if (in_place) return staged_input(lap);
    return whole ? whole->output.tensor : lap.slot->output.tensor;
  }
  // What a lap copies, in or out.
  Part copied(const Lap& lap) const { return whole ? kAll : lap.part; }

  // --- each on the thread of its stage ---
  // `queue` makes the thread's CopyQueue when it is first asked for, and throws what that throws.
  // `find_direct` is called before anything is copied.
  void copy_in(const Lap& lap, auto&& queue, auto&& find_direct) {
    const bool first = &lap == &laps.front();
    const bool begins = in_stream() && first;
    if (!(reads || first) || (whole && !first) || lap.direct || pending->failing()) return;
    guarded(lap, "to", [&] {
      const auto start = [&] {
        if (begin) queue().wait_for(*begin);
        queue().wait();
      };
      if (begins) {  // the network's time begins when the stream gets here, also where nothing is
                     // copied
        start();
        pending->begin();
      }
      if (first) find_direct(start);
      if (!reads || lap.direct) return;
      const CopyQueue& copies = queue();
      if (begin && first) copies.wait_for(*begin);
      input.to_host(copies, staged_input(lap), copied(lap));
      copies.wait();
    });
  }
  // Also if the call has failed: an operation that was prepared is launched, and ends at once. What
  // no copy holds up need not wait for its turn.
  void communicate(Lap& lap) {
    const auto from = static_cast<size_t>(&lap - laps.data());
    for (size_t i = from; i < std::min(from + kSlots, laps.size()); ++i) {
      if (i > from && !laps[i].direct && !whole) continue;
      if (std::exchange(laps[i].launched, true)) continue;
      communicator->launch(laps[i].operations, /*waited_for=*/true);
    }
    communicator->engine().wait(lap.operations, Deadline::never());
  }
  void copy_out(const Lap& lap, auto&& queue) {
    const bool last = &lap == &laps.back();
    if (last && places) flush();
    if (whole && !last) return;
    const auto any_failed = [&] {
      return std::ranges::any_of(laps, [&](const Lap& one) { return failed(one); });
    };
    const bool copies = writes && !lap.direct;
    if (!(whole ? any_failed() : failed(lap)) && (copies || (last && !copies_back.empty())))
      copy_result(lap, queue, copies);
    if (last && in_stream() && any_failed()) spoil(queue);
  }
  void end() {
    // Whoever waits may look at once for the memory that he let go of.
    input = output = {};
    places.reset();
    whole.reset();
    fresh.clear();
    copies_back.clear();
    begin.reset();
    pending->end_laps();
  }
  // ---

 private:
  bool failed(const Lap& lap) const {
    const auto has_failed = [](const auto& operation) { return operation->error() != nullptr; };
    return pending->failing() || std::ranges::any_of(lap.operations, has_failed);
  }

  // What cards wrote is there for the work that comes behind the call.
  void flush() {
    const auto error = access.plugin()->flush(access.plugin_index());
    if (error)
      fail(laps.back(), "the device did not take what network cards wrote: " + error->message);
  }

  void copy_result(const Lap& lap, auto&& queue, bool writes_output) {
    guarded(lap, "from", [&] {
      const CopyQueue& copies = queue();
      if (begin && (whole || &lap == &laps.front())) copies.wait_for(*begin);
      if (writes_output) output.to_device(copies, staged_output(lap), copied(lap));
      copies.wait();
      if (&lap != &laps.back() || copies_back.empty()) return;
      copy_all(copies_back, /*non_blocking=*/false);
      access.synchronize_current_stream();
    });
  }

  // Through memory that nothing need be asked of the device for, which might wait for the stream
  // that waits for this.
  void spoil(auto&& queue) {
    size_t most = 0;
    for (const Lap& lap : laps) most = std::max(most, output.bytes(lap.part));
    if (most == 0) return;
    try {
      std::vector<uint8_t> spoilt(most, byte_that_spoils(type == DataType::kBool));
      const at::Tensor memory =
          at::from_blob(spoilt.data(), {static_cast<int64_t>(most)}, at::kByte);
      const CopyQueue& copies = queue();
      copies.wait_for(*begin);
      for (const Lap& lap : laps) output.to_device(copies, memory, lap.part);
      copies.wait();
    } catch (const std::exception& error) {
      log_warn("what a call that failed has written could not be made unusable: " +
               words_of(error));
    }
  }

  // The group ends with a copy that fails: the other ranks would wait for laps that hold nothing.
  void guarded(const Lap& lap, const char* direction, auto&& copy) {
    try {
      copy();
    } catch (const std::exception& error) {
      fail(lap, std::string("the device did not copy ") + direction +
                    " staging memory: " + words_of(error));
    }
  }

  void fail(const Lap& lap, const std::string& why) {
    const Lap& named = lap.operations.empty() ? laps.front() : lap;
    const std::string reason = named.operations.front()->describe() + " failed: " + why;
    pending->fail({ErrorCode::kDevice, reason});
    communicator->abort(reason);
  }
};

}  // namespace hccl_like
