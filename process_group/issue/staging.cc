#include "process_group/issue/staging.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "process_group/calls/buffers.h"
#include "process_group/calls/sharing.h"
#include "process_group/device/device_attempt.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/issue/staging_call.h"
#include "process_group/staging/copy_costs.h"
#include "process_group/staging/copy_queue.h"

namespace hccl_like {

Staging::Staging(Devices& devices, const DeviceAccess& access, size_t most)
    : devices_(devices),
      access_(access),
      host_(devices.access(c10::kCPU)),
      streams_(access.device(), access.plugin()),
      direct_(devices, access),
      in_stream_(access.large_stream_ordered()),
      most_(most) {
  try {
    for (const Stage stage : {kCopyIn, kNetwork, kCopyOut})
      threads_[stage] = own_thread("stages calls on a device", [this, stage] { run(stage); });
    if (in_stream_) await_queues();
  } catch (...) {
    stop();
    throw;
  }
}

Staging::~Staging() { stop(); }

void Staging::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// Waits until both copying threads tried to make a queue, which may wait for all work of the
// device; later that might include a stream that waits for this queue's copies.
void Staging::await_queues() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return without_queue_ == 0; });
}

StagingMemory Staging::memory(size_t bytes) {
  StagingMemory memory = StagingMemory::make(access_, bytes);
  if (!std::exchange(told_, true))
    log_info([&] {
      return access_.device().str() + ": large calls are " + CopyQueue::describe(access_) +
             ", through memory " + memory.kind;
    });
  return memory;
}

bool Staging::favours_whole(const Call& call, const Slices& slices) const {
  if (slices.count == 1 || DeviceSlices::may_serve(access_, *call.communicator)) return false;
  const CopyCosts& costs = copy_costs_of(devices_, access_);
  if (costs.per_block == 0) return false;
  size_t bytes = 0, whole = 0, parts = 0;
  for (const DeviceSide* side :
       {call.reads ? &call.input : nullptr, call.writes ? &call.output : nullptr}) {
    if (side == nullptr) continue;
    bytes += side->bytes(Call::kAll);
    whole += side->bytes_touched(Call::kAll);
    for (size_t slice = 0; slice < slices.count; ++slice)
      parts += side->bytes_touched(slices.part(slice));
  }
  return costs.favour_whole(bytes, whole, parts);
}

void Staging::make_whole(Call& call) {
  auto& whole = call.whole.emplace();
  const auto fill = [&](const DeviceSide& side, StagingMemory& memory, auto& places) {
    const size_t bytes = side.bytes(Call::kAll);
    if (bytes > 0 && !memory.tensor.defined()) {
      memory = this->memory(bytes);
      call.pending->hold_temporary(memory.tensor);
    }
    places = side.places(region_of(memory.tensor));
  };
  fill(call.input, whole.input, whole.input_places);
  fill(call.output, call.in_place ? whole.input : whole.output, whole.output_places);
}

std::shared_ptr<Staging::Call> Staging::prepare(const Request& request, const Slices& slices,
                                                std::chrono::milliseconds timeout,
                                                const std::shared_ptr<Communicator>& communicator,
                                                std::shared_ptr<Pending> pending,
                                                std::optional<Collective> part_of) {
  const c10::DeviceGuard device_guard(access_.device());
  const int rank = communicator->rank();
  auto call = std::make_shared<Call>(access_);
  call->communicator = communicator;
  call->bare = bare_call(request);
  call->bare.timeout = timeout;
  call->bare.part_of = part_of;
  call->cut = slices;
  auto inputs = call->set(request, rank, communicator->size());
  call->pending = pending;
  const bool may_stream =
      may_use_streams(access_, communicator->topology().hosts,
                      communicator->path_options(request.collective), request.collective);
  if (may_stream)
    for (at::Tensor& memory :
         call->pack(access_.device(), request.collective == Collective::kAllToAll))
      pending->hold_temporary(std::move(memory));
  else if (favours_whole(*call, slices))
    make_whole(*call);
  if (!call->in_place && !call->whole && !call->input.may_be_overwritten_by(call->output)) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (at::Tensor& tensor : inputs)
      tensor = at::empty(tensor.sizes(), tensor.options()).copy_(tensor);
    call->input = DeviceSide(request.input, inputs, rank, communicator->size());
    if (in_stream_)
      for (const at::Tensor& tensor : inputs) pending->hold_temporary(tensor);
  }
  if (in_stream_) {
    for (auto& [tensor, stands_for_it] : std::exchange(call->fresh, {}))
      pending->hold_temporary(std::move(stands_for_it));
    for (auto& [to, from] : std::exchange(call->copies_back, {}))
      pending->copy_back(std::move(to), std::move(from));
    call->input.let_go();
    call->output.let_go();
  }
  // Includes the copies made above: later steps use other streams.
  call->begin = streams_.record_current();
  if (!call->begin) access_.synchronize_current_stream();

  call->first_slot = prepared_;
  prepared_ += slices.count;
  take_slots(*call);
  if (may_stream)
    prepare_stream(*call);
  else
    prepare_slices(*call);
  return call;
}

std::shared_ptr<Staging::Call> Staging::prepare_nothing(std::shared_ptr<Pending> pending) const {
  auto call = std::make_shared<Call>(access_);
  call->pending = std::move(pending);
  return call;
}

// Staging memory for the call. Not later: to allocate it may wait for the caller's stream.
void Staging::take_slots(const Call& call) {
  if (call.whole) return;
  const auto fill = [&](const DeviceSide& side, StagingMemory& memory) {
    if (side.bytes(Call::kAll) > 0 && !memory.tensor.defined()) memory = this->memory(most_);
  };
  for (size_t number = 0; number < std::min(call.cut.count, kSlots); ++number) {
    Slot& slot = slots_[(call.first_slot + number) % kSlots];
    fill(call.input, slot.input);
    if (!call.in_place) fill(call.output, slot.output);
  }
}

bool Staging::busy() {
  std::lock_guard lock(mutex_);
  return done_[kCopyOut] != prepared_;
}

void Staging::launch(std::shared_ptr<Call> call) {
  {
    std::lock_guard lock(mutex_);
    for (auto& calls : calls_) calls.push_back(call);
  }
  changed_.notify_all();
}

// Null when stopping and no call is left.
std::shared_ptr<Staging::Call> Staging::next(Stage stage) {
  auto& calls = calls_[stage];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !calls.empty(); });
  if (calls.empty()) return nullptr;
  auto call = std::move(calls.front());
  calls.pop_front();
  return call;
}

void Staging::await_slice(Stage stage) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stage == kCopyIn ? done_[kCopyIn] < done_[kCopyOut] + kSlots
                            : done_[stage] < done_[stage - 1];
  });
}

// Makes the device-local copies of all slices at once, because network cards may read the copied
// data from the first slice on. `start` waits for the work before the call.
void Staging::find_direct(Call& call, auto&& queue, auto&& start) {
  auto places = direct_.places(*call.communicator, call.bare.collective, call.input, call.output);
  if (!places) return;
  const size_t element = size_of(call.bare.type);
  bool any = false, copied = false;
  for (Slice& slice : call.slices) {
    const auto own = direct_.take(*places, call.input, call.output, slice.part, element,
                                  slice.operations, slice.roles);
    if (!own) continue;
    if (!std::exchange(any, true) && !in_stream_) start();
    slice.direct = true;
    for (const size_t chunk : *own)
      call.input.give(queue(), call.output, chunk, slice.part), copied = true;
  }
  if (copied) queue().wait();
  if (any) call.places = std::move(places);
}

// Serves a call that all ranks leave to their streams. False for other calls.
bool Staging::run_in_stream(Stage stage, Call& call, auto&& queue) {
  if (!call.streamed && !call.message) return false;
  if (stage != kCopyIn)
    await_slice(stage);
  else if (!call.start_stream())
    prepare_late(call);
  if (!call.by_stream) return false;
  if (stage == kNetwork) call.finish_stream();
  if (stage == kCopyOut) call.end_stream(queue);
  {
    std::lock_guard lock(mutex_);
    done_[stage] += call.cut.count;
  }
  changed_.notify_all();
  return true;
}

void Staging::run(Stage stage) {
  std::optional<CopyQueue> copies;
  const auto queue = [&]() -> const CopyQueue& {
    return copies ? *copies : copies.emplace(devices_, access_, streams_);
  };
  if (in_stream_ && stage != kNetwork) {
    works(queue);  // on failure, the first copy reports the reason
    {
      std::lock_guard lock(mutex_);
      --without_queue_;
    }
    changed_.notify_all();
  }
  while (const auto call = next(stage)) {
    if (stage == kCopyIn) call->launch_comparison();
    if (stage == kCopyIn && !in_stream_) call->pending->begin();
    const bool in_stream = run_in_stream(stage, *call, queue);
    for (Slice& slice : call->slices) {
      if (in_stream) break;
      await_slice(stage);
      switch (stage) {
        case kCopyIn:
          call->copy_in(slice, queue, [&](auto&& start) { find_direct(*call, queue, start); });
          break;
        case kNetwork:
          call->communicate(slice);
          break;
        default:
          call->copy_out(slice, queue);
      }
      {
        std::lock_guard lock(mutex_);
        ++done_[stage];
      }
      changed_.notify_all();
    }
    if (stage == kCopyOut) call->end();
  }
}

}  // namespace hccl_like
