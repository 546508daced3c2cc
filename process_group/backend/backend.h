#pragma once
// c10d's Backend for CPU and accelerator tensors. The Issuer makes the calls.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "process_group/backend/membership.h"
#include "process_group/backend/options.h"
#include "process_group/issue/diagnosis.h"
#include "process_group/issue/issuer.h"

namespace hccl_like {

// Any thread, never with the GIL held. shutdown() or the destructor leaves the group.
class Backend final : public c10d::Backend {
 public:
  using c10d_Options = c10d::Backend::Options;

  // Blocks until all ranks are connected; after options->timeout throws and names the missing
  // ranks. With a membership, ranks that pass different members raise at once.
  static c10::intrusive_ptr<Backend> create(const std::shared_ptr<Session>& session,
                                            const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size,
                                            const c10::intrusive_ptr<hccl_like::Options>& options,
                                            Membership* membership = nullptr);
  // For create() and split().
  Backend(const std::shared_ptr<Session>& session, std::shared_ptr<Communicator> communicator,
          c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<hccl_like::Options> options);
  ~Backend() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d_Options> getBackendOptions() override { return options_; }
  const c10::intrusive_ptr<hccl_like::Options>& options() const { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }
  bool supportsTimeEstimation() const override { return true; }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(NestedTensors& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(NestedTensors& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(NestedTensors& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, NestedTensors& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, NestedTensors& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void startCoalescing() override { issuer_.begin_block(); }
  WorkPtr endCoalescing() override { return issuer_.end_block(); }

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d_Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags,
      const c10::intrusive_ptr<c10d_Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d_Options>& options,
                                          const int& rank, const int& size) override;
  uint64_t splits() const { return splits_; }

  // For the Suspension, which says when (suspension.h).
  Issuer& issuer() { return issuer_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  // Leaves the session; calls are refused until rejoin().
  void leave_session();
  // Meets the same ranks again and makes new communicators. Throws as create() does, and can then
  // be called again. Null `store`: the group's own.
  void rejoin(const std::shared_ptr<Session>& session, const c10::intrusive_ptr<c10d::Store>& store,
              std::chrono::milliseconds timeout);
  // The id of the last communicator: alike on all ranks, and another one after each rejoin().
  uint64_t id() const { return id_; }

  // On a device: memory of torch's allocator, which needs no registration. On the host: memory that
  // peers can map (host_tensors.h). getMemAllocator() throws: there is no device allocator.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  // Overrides of c10d::Backend since torch 2.12; no `override`, because older versions lack them. A
  // group holds no device memory between calls, so resume() restores nothing.
  void suspend() { issuer_.settle(); }
  void resume() {}
  // Number and temporary bytes of the calls that are not over.
  std::unordered_map<std::string, uint64_t> getMemoryStats();

  void setTimeout(std::chrono::milliseconds timeout) override;
  // Calls are numbered alike on all ranks from the start, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  // The hook runs on its own thread after the end of each call made from now on.
  void registerOnCompletionHook(CompletionHooks::Hook&& hook) override;
  void waitForPendingWorks() override;
  // Calls are always timed.
  void enableCollectivesTiming() override {}
  Diagnosis& diagnosis() { return diagnosis_; }
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  // Ends all running calls of all ranks with an error. Does not block.
  void abort() override;
  // Waits for the running calls and leaves the group.
  void shutdown() override;
  // As shutdown(), but aborts calls that do not end soon.
  void close_at_exit();
  // Notes the failures of calls that are over (untold.h), without waiting.
  void look_for_failures() { issuer_.reap(); }
  // Aborts the group, if it has not failed, with a reason that all ranks receive.
  void abort(const std::string& reason);

  // The group's host communicator; null after shutdown().
  std::shared_ptr<Communicator> communicator() const {
    const auto communicators = issuer_.communicators();
    return communicators ? communicators->host() : nullptr;
  }

 private:
  // The communicator and the issuer are new.
  void open(const std::shared_ptr<Session>& session, const Communicator& communicator);
  // After open(), on all ranks: the algorithms that users wrote.
  void add_own_algorithms();
  // This rank is through with a `use` that all ranks make of the store, of the same name on all.
  void tell_through(const std::string& use);
  // Rank 0, with whose process the store may end, waits for the others to be through with the last.
  void await_ranks_in_store();

  c10::Device barrier_device(const c10d::BarrierOptions& options) const;
  RankInfo self() const { return {rank_, size_}; }
  c10::intrusive_ptr<Backend> part(const std::vector<int>& ranks,
                                   c10::intrusive_ptr<hccl_like::Options> options);
  template <class Make>
  WorkPtr issue(const char* name, Make&& make);

  c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<hccl_like::Options> options_;
  Diagnosis diagnosis_;
  Issuer issuer_;
  uint64_t id_;
  std::string store_prefix_;       // of this group's own keys
  std::string last_use_of_store_;  // empty: all ranks together made none
  std::atomic<uint64_t> monitored_barriers_{0};
  uint64_t sequence_before_ = 0;  // calls of the communicators before a suspension

  // torch calls split() once for each device type with the same store and expects the same backend.
  struct Split {
    c10::intrusive_ptr<c10d::Store> store;
    std::vector<int> ranks;
    std::string name;
    std::optional<c10::weak_intrusive_ptr<c10d::Backend>>
        backend;  // none if this rank is not a member
  };
  std::mutex split_mutex_;
  std::optional<Split> last_split_;
  std::atomic<uint64_t> splits_{0};
};

// At the end of the program: all backends leave their groups, with a short wait. With `reason`,
// first aborts all groups with it.
void close_all(Session& session, const std::string& reason);

}  // namespace hccl_like
