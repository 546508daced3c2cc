#include "process_group/staging.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "collectives/engine.h"
#include "process_group/device_capabilities.h"
#include "process_group/host_tensors.h"
#include "process_group/sharing.h"

namespace hccl_like {
namespace {

// The device, and a stream of the thread's own if there are any, for as long as this lives.
class CopyQueue {
 public:
  CopyQueue(Devices& devices, const DeviceAccess& access)
      : devices_(devices), access_(access), device_guard_(access.device()) {
    if (capabilities_of(access.device()).has(Feature::kStreams))
      stream_guard_.reset_stream(devices.take_stream(access));
  }
  ~CopyQueue() {
    if (stream_guard_.current_stream()) devices_.give_back(*stream_guard_.current_stream());
  }

  // Blocks until the copies that this thread made are done, should the device have said so too early.
  void wait() const { access_.synchronize_current_stream(); }

 private:
  Devices& devices_;
  const DeviceAccess& access_;
  c10::DeviceGuard device_guard_;
  c10::OptionalStreamGuard stream_guard_;
};

std::thread quiet_thread(auto&& work) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<decltype(work)>(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

at::Tensor slice(const at::Tensor& memory, size_t bytes) {
  return memory.narrow(0, 0, static_cast<int64_t>(bytes));
}

Region region_of(const at::Tensor& memory, size_t bytes) {
  return {bytes == 0 ? nullptr : static_cast<std::byte*>(memory.data_ptr()), bytes};
}

}  // namespace

// One lap's place, and its operation.
class Staging::Call {
 public:
  struct Lap {
    Part part;
    Slot* slot = nullptr;
    std::shared_ptr<Operation> operation;
  };

  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Pending> pending;
  DeviceSide input, output;
  bool in_place = false;  // both sides are the same tensors, and use the same staging memory
  bool reads = true;      // this rank's input is copied from the device
  bool writes = true;     // and its output to it
  std::vector<Lap> laps;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      fresh;           // a tensor that is not plain, and what stands for it
  Copies copies_back;  // to them, at the end

  const at::Tensor& staged_output(const Slot& slot) const {
    return in_place ? slot.input : slot.output;
  }

  // --- each on the thread of its stage ---
  void copy_in(const Lap& lap, const CopyQueue& copies) {
    if (!reads || pending->failing()) return;
    guarded("to", [&] {
      input.to_host(lap.slot->input, lap.part);
      copies.wait();
    });
  }
  // Also if the call has failed: an operation that was prepared is launched, and ends at once.
  void communicate(const Lap& lap) {
    communicator->launch({&lap.operation, 1}, /*waited_for=*/true);
    communicator->engine().wait(*lap.operation, Deadline::never());
  }
  void copy_out(const Lap& lap, const CopyQueue& copies) {
    if (lap.operation->error() || pending->failing()) return;
    guarded("from", [&] {
      if (writes) output.to_device(staged_output(*lap.slot), lap.part);
      if (&lap == &laps.back()) copy_all(copies_back, /*non_blocking=*/false);
      copies.wait();
    });
  }
  void end() {
    // Whoever waits may look at once for the memory that he let go of.
    input = output = {};
    fresh.clear();
    copies_back.clear();
    Pending::join(pending.get());
  }
  // ---

 private:
  // The group ends with a copy that fails: the other ranks would wait for laps that hold nothing.
  void guarded(const char* direction, auto&& copy) {
    try {
      copy();
    } catch (const std::exception& error) {
      const std::string reason = std::string("the device did not copy ") + direction +
                                 " staging memory: " + words_of(error);
      pending->fail({ErrorCode::kDevice, reason});
      communicator->abort(reason);
    }
  }
};

Staging::Staging(Devices& devices, const DeviceAccess& access, size_t most)
    : devices_(devices), access_(access), host_(devices.access(c10::kCPU)), most_(most) {}

Staging::~Staging() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

at::Tensor Staging::memory() const {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const std::vector<int64_t> sizes{static_cast<int64_t>(most_)};
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (capabilities_of(access_.device()).has(Feature::kPinnedMemory))
    return at::empty(sizes, options.pinned_memory(true));
  return empty_mappable(sizes, options);
}

// The tensors of a side, or plain memory of the device in place of those that are not.
std::vector<at::Tensor> Staging::plain(const Side& side, bool written, Call& call) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : side.tensors) {
    if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
      tensors.push_back(tensor);
      continue;
    }
    const at::AutoDispatchBelowADInplaceOrView unseen;
    auto known = std::find_if(call.fresh.begin(), call.fresh.end(),
                              [&](const auto& one) { return one.first.is_same(tensor); });
    if (known == call.fresh.end()) {
      call.fresh.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options()));
      known = std::prev(call.fresh.end());
      if (!written) known->second.copy_(tensor);
    }
    if (written) call.copies_back.push_back(*known);
    tensors.push_back(known->second);
  }
  return tensors;
}

std::shared_ptr<Staging::Call> Staging::prepare(const Request& request, const Laps& laps,
                                                std::chrono::milliseconds timeout,
                                                const std::shared_ptr<Communicator>& communicator,
                                                std::shared_ptr<Pending> pending) {
  const c10::DeviceGuard device_guard(access_.device());
  const int rank = communicator->rank();
  auto call = std::make_shared<Call>();
  call->communicator = communicator;
  auto inputs = plain(request.input, /*written=*/false, *call);
  const auto outputs = plain(request.output, /*written=*/true, *call);
  call->output = DeviceSide(request.output, outputs, rank, communicator->size());
  call->in_place = !inputs.empty() && inputs.size() == outputs.size() &&
                   std::equal(inputs.begin(), inputs.end(), outputs.begin(),
                              [](const auto& a, const auto& b) { return a.is_same(b); }) &&
                   request.input.arrangement == request.output.arrangement;
  call->input = DeviceSide(request.input, inputs, rank, communicator->size());
  if (!call->in_place && !call->input.may_be_overwritten_by(call->output)) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (at::Tensor& tensor : inputs)
      tensor = at::empty(tensor.sizes(), tensor.options()).copy_(tensor);
    call->input = DeviceSide(request.input, inputs, rank, communicator->size());
  }
  if (request.collective == Collective::kBroadcast) {
    call->reads = request.root == rank;
    call->writes = !call->reads;
  }
  // Also for the copies just made: what follows is on other streams.
  access_.synchronize_current_stream();

  const size_t element = size_of(request.type);
  for (size_t lap = 0; lap < laps.count; ++lap) {
    const Part part = laps.part(lap);
    Slot& slot = slots_[(prepared_ + lap) % kSlots];
    hccl_like::Call one{.collective = request.collective,
                        .type = request.type,
                        .op = request.op,
                        .factor = request.factor,
                        .root = request.root,
                        .timeout = timeout};
    const size_t in_bytes = call->input.bytes(part), out_bytes = call->output.bytes(part);
    if (in_bytes > 0 && !slot.input.defined()) slot.input = memory();
    if (out_bytes > 0 && !call->in_place && !slot.output.defined()) slot.output = memory();
    const at::Tensor& output = call->staged_output(slot);
    one.input = call->input.layout(region_of(slot.input, in_bytes), element);
    one.output = call->output.layout(region_of(output, out_bytes), element);
    if (worth_sharing(*communicator, host_, one)) {
      const at::Tensor in = in_bytes > 0 ? slice(slot.input, in_bytes) : at::Tensor();
      const at::Tensor out = out_bytes > 0 ? slice(output, out_bytes) : at::Tensor();
      share(host_, in_bytes > 0 ? &in : nullptr, out_bytes > 0 ? &out : nullptr, one);
    }
    auto operation = communicator->prepare(std::move(one));
    pending->add(operation);
    call->laps.push_back({part, &slot, std::move(operation)});
  }
  pending->hold(request.input.tensors);
  pending->hold(request.output.tensors);
  call->pending = std::move(pending);
  prepared_ += laps.count;
  return call;
}

void Staging::launch(std::shared_ptr<Call> call) {
  {
    std::lock_guard lock(mutex_);
    for (auto& calls : calls_) calls.push_back(call);
    for (const Stage stage : {kCopyIn, kNetwork, kCopyOut})
      if (!threads_[stage].joinable())
        threads_[stage] = quiet_thread([this, stage] { run(stage); });
  }
  changed_.notify_all();
}

// Null once there will be none.
std::shared_ptr<Staging::Call> Staging::next(Stage stage) {
  auto& calls = calls_[stage];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !calls.empty(); });
  if (calls.empty()) return nullptr;
  auto call = std::move(calls.front());
  calls.pop_front();
  return call;
}

void Staging::await_lap(Stage stage) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stage == kCopyIn ? done_[kCopyIn] < done_[kCopyOut] + kSlots
                            : done_[stage] < done_[stage - 1];
  });
}

void Staging::run(Stage stage) {
  std::optional<CopyQueue> copies;
  if (stage != kNetwork) copies.emplace(devices_, access_);
  while (const auto call = next(stage)) {
    if (stage == kCopyIn) call->pending->begin();
    for (Call::Lap& lap : call->laps) {
      await_lap(stage);
      switch (stage) {
        case kCopyIn:
          call->copy_in(lap, *copies);
          break;
        case kNetwork:
          call->communicate(lap);
          break;
        default:
          call->copy_out(lap, *copies);
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
