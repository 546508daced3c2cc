#pragma once
// c10d's Backend: one object serves the accelerator and the CPU. Every method is a line or two; the
// work is done by the Issuer (calls) and the collectives layer (everything else).
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

  // Meets the other ranks; blocks until all are there, or throws naming those that did not come in
  // options->timeout. With a parent, whose ranks the options give, ranks that pass other members
  // raise at once.
  static c10::intrusive_ptr<Backend> create(const std::shared_ptr<Session>& session,
                                            const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size,
                                            const c10::intrusive_ptr<hccl_like::Options>& options,
                                            Backend* parent = nullptr);
  // On a rank that is in no group of that name: tells the others, which may think that it is.
  void declare_members(const std::string& group, const std::vector<uint64_t>& members);
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

  // A device's tensors of torch's allocator are sent from where they are and nothing needs to be
  // registered, so that is what allocateTensor() gives; on the host it is memory that peers can map
  // (host_tensors.h). An allocator of our own for the device does not exist, and getMemAllocator()
  // says so.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  // The three override functions of c10d::Backend since torch 2.12; without the word, older ones
  // take them too. Between calls a group holds no memory of a device, so there is nothing that
  // resume() would have to get back.
  void suspend() { issuer_.settle(); }
  void resume() {}
  // What the calls of this group that are not over hold.
  std::unordered_map<std::string, uint64_t> getMemoryStats();

  void setTimeout(std::chrono::milliseconds timeout) override;
  // The calls are numbered from the beginning, alike on all ranks, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  // The hook runs on a thread of its own for each call made from now on, once it is over.
  void registerOnCompletionHook(CompletionHooks::Hook&& hook) override;
  void waitForPendingWorks() override;
  // Calls are always timed.
  void enableCollectivesTiming() override {}
  Diagnosis& diagnosis() { return diagnosis_; }
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  // Ends all running calls, here and on the other ranks, with an error; they raise it within a
  // moment. Does not block.
  void abort() override;
  // Waits for the calls that run and leaves the group.
  void shutdown() override;
  // The same without waiting long for anybody.
  void close_at_exit();
  // Notes the failures of calls that are over (untold.h). Does not wait for any.
  void look_for_failures() { issuer_.reap(); }
  // Gives the group up, if it is well, for a reason that all ranks are told.
  void abort(const std::string& reason);

  // The group as the collectives layer knows it; null after shutdown().
  std::shared_ptr<Communicator> communicator() const {
    const auto communicators = issuer_.communicators();
    return communicators ? communicators->host() : nullptr;
  }

 private:
  Membership membership(const std::string& group, const std::vector<uint64_t>& members) const;
  c10::Device barrier_device(const c10d::BarrierOptions& options) const;
  Place place() const { return {rank_, size_}; }
  c10::intrusive_ptr<Backend> part(const std::vector<int>& ranks,
                                   c10::intrusive_ptr<hccl_like::Options> options);
  // Makes the call and issues it; its errors become torch's.
  template <class Make>
  WorkPtr issue(const char* name, Make&& make);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<hccl_like::Options> options_;
  Diagnosis diagnosis_;
  Issuer issuer_;
  std::string store_prefix_;  // of this group's own keys
  std::atomic<uint64_t> monitored_barriers_{0};

  // split() is called once for each device type, with the same store, and all must get the same
  // backend.
  struct Split {
    c10::intrusive_ptr<c10d::Store> store;
    std::vector<int> ranks;
    std::string name;
    std::optional<c10::weak_intrusive_ptr<c10d::Backend>>
        backend;  // nothing if this rank is in no part
  };
  std::mutex split_mutex_;
  std::optional<Split> last_split_;
  std::atomic<uint64_t> splits_{0};
};

// For the end of the program: every backend leaves its group, without waiting long for the others.
// With a reason why the program ended too early, the others are told that.
void close_all(Session& session, const std::string& reason);

}  // namespace hccl_like
