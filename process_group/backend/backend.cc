#include "process_group/backend/backend.h"

#include <ATen/ATen.h>

#include "core/base/log.h"
#include "process_group/backend/monitored_barrier.h"
#include "process_group/backend/sparse.h"
#include "process_group/device/host_tensors.h"
#include "process_group/diagnosis/errors.h"

namespace hccl_like {
namespace {

// Time limit for running calls of a group that is destroyed without shutdown().
constexpr std::chrono::milliseconds kCloseTimeout{1000};
// How long rank 0, with whose process the store may end, stays for ranks that still use it.
constexpr std::chrono::milliseconds kUntilAllAreThrough{5000};
constexpr const char *kThrough = "/through", *kAllAreThrough = "/all through";

}  // namespace

Backend::~Backend() {
  if (const auto session = issuer_.session()) session->remove(*this);
  issuer_.close(kCloseTimeout);
}

template <class Make>
Backend::WorkPtr Backend::issue(const char* name, Make&& make) {
  const auto where = [name] { return std::string("hccl-like ") + name; };
  return issuer_.issue(translated(where, std::forward<Make>(make)));
}

// ------------------------------------------------------------------------------------------- calls

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return issue("broadcast", [&] { return hccl_like::broadcast(tensors, options); });
}

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (has_sparse(tensors)) return allreduce_sparse(tensors, options);
  return issue("all_reduce", [&] { return all_reduce(tensors, options); });
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  return sparse_all_reduce(issuer_, tensors, options, self());
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  return issue("all_reduce_coalesced", [&] { return all_reduce_coalesced(tensors, options); });
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return issue("reduce", [&] { return hccl_like::reduce(tensors, options, self()); });
}

Backend::WorkPtr Backend::allgather(NestedTensors& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  return issue("all_gather", [&] { return all_gather(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  return issue("all_gather_into_tensor",
               [&] { return hccl_like::all_gather_single(output, input, options, self()); });
}

Backend::WorkPtr Backend::allgather_coalesced(NestedTensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  return issue("all_gather_coalesced",
               [&] { return all_gather_lists(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  return issue("all_gather_into_tensor",
               [&] { return all_gather_coalesced(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::gather(NestedTensors& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  return issue("gather", [&] { return hccl_like::gather(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, NestedTensors& inputs,
                                  const c10d::ScatterOptions& options) {
  return issue("scatter", [&] { return hccl_like::scatter(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, NestedTensors& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  return issue("reduce_scatter",
               [&] { return hccl_like::reduce_scatter(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return issue("reduce_scatter_tensor",
               [&] { return hccl_like::reduce_scatter_single(output, input, options, self()); });
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return issue("reduce_scatter_tensor",
               [&] { return reduce_scatter_coalesced(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  return issue("all_to_all_single", [&] {
    return hccl_like::all_to_all_single(output, input, output_splits, input_splits, options,
                                        self());
  });
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  return issue("all_to_all", [&] { return all_to_all(outputs, inputs, options, self()); });
}

Backend::WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  return issue("send", [&] { return hccl_like::send(tensors, to, tag); });
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  return issue("recv", [&] { return receive(tensors, from, tag); });
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return issue("recv", [&] { return receive(tensors, kAnySource, tag); });
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  return issue("barrier", [&] { return hccl_like::barrier(options, barrier_device(options)); });
}

// torch does not always name the device of a barrier. Uses the device that the user named or the
// group last used, and never opens another one.
c10::Device Backend::barrier_device(const c10d::BarrierOptions& options) const {
  if (options.device) return *options.device;
  if (!options.device_ids.empty()) {
    return {accelerator_type(), static_cast<c10::DeviceIndex>(options.device_ids.front())};
  }
  return issuer_.accelerator().value_or(c10::Device(c10::kCPU));
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  translated("hccl-like monitored_barrier", [&] {
    (void)issuer_.open_session();
    C10dStore store(store_, store_prefix_);
    const auto timeout =
        options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
    const std::string name = "monitored_barrier/" + std::to_string(monitored_barriers_++);
    monitored_barrier(store, name, rank_, size_, timeout, wait_all_ranks);
    tell_through(name);
  });
}

// -------------------------------------------------------------------------------------- management

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  return options.device().is_cpu() ? empty_mappable({size}, options) : at::empty({size}, options);
}

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() {
  throw_torch_error({ErrorCode::kUnsupported,
                     "there is no allocator of its own, because tensors from torch's allocator are "
                     "sent from where they are; use torch.empty(), or allocate_tensor()"},
                    "hccl-like mem_allocator");
}

std::unordered_map<std::string, uint64_t> Backend::getMemoryStats() {
  const auto held = issuer_.held();
  return {{"running_calls", held.calls}, {"temporary_bytes", held.temporary_bytes}};
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  diagnosis_.failure_report()->set_timeout(timeout);
  if (const auto communicators = issuer_.communicators()) communicators->set_timeout(timeout);
}

uint64_t Backend::getSequenceNumberForGroup() {
  const auto communicators = issuer_.communicators();
  return sequence_before_ + (communicators ? communicators->sequence() : 0);
}

// Connections already exist; this only opens access to the device.
void Backend::eagerConnectSingleDevice(at::Device device) {
  translated("hccl-like", [&] {
    if (const auto session = issuer_.session()) session->devices().access(device);
  });
}

c10d::ErrorType Backend::getError() {
  const auto communicators = issuer_.communicators();
  const auto failure = communicators ? communicators->failure() : std::nullopt;
  if (!failure) return c10d::ErrorType::SUCCESS;
  switch (failure->code) {
    case ErrorCode::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case ErrorCode::kPeerLost:
    case ErrorCode::kAborted:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

void Backend::abort() {
  issuer_.note_aborted();
  abort("abort() was called");
}

void Backend::abort(const std::string& reason) {
  const auto session = issuer_.session();
  const auto communicators = issuer_.communicators();
  if (communicators && session && !session->forked()) communicators->abort(reason);
}

void Backend::registerOnCompletionHook(CompletionHooks::Hook&& hook) {
  translated("hccl-like completion hook", [&] {
    (void)issuer_.open_session();
    naming_rank(rank_, [&] {
      if (const auto session = issuer_.session()) session->completer().start();
      diagnosis_.set_hook(std::move(hook));
    });
  });
  onCompletionHook_ = [](const auto&) {};  // torch only checks that it is set
}

void Backend::waitForPendingWorks() { diagnosis_.wait_for_hook(); }

void Backend::tell_through(const std::string& use) {
  last_use_of_store_ = use;
  C10dStore own(store_, store_prefix_);
  if (rank_ > 0 && own.add(use + kThrough, 1) == size_ - 1) own.set(use + kAllAreThrough, "");
}

void Backend::await_ranks_in_store() {
  const auto communicators = issuer_.communicators();
  if (last_use_of_store_.empty() || rank_ > 0 || size_ == 1) return;
  if (!communicators || communicators->failure()) return;
  try {
    C10dStore(store_, size_, store_prefix_)
        .get(last_use_of_store_ + kAllAreThrough, Deadline::after(kUntilAllAreThrough));
  } catch (const std::exception& error) {
    log_info([&] { return std::string("some rank may still use the store: ") + error.what(); });
  }
}

void Backend::shutdown() {
  await_ranks_in_store();
  const auto session = issuer_.session();
  issuer_.close(std::nullopt);
  diagnosis_.wait_for_hook();
  diagnosis_.remove_hook();
  if (session) session->remove(*this);
}

void Backend::close_at_exit() {
  await_ranks_in_store();
  issuer_.close(kCloseTimeout);
  diagnosis_.remove_hook();
}

}  // namespace hccl_like
