#pragma once
// Converts each c10d call into an Issue for the Issuer. Checks arguments; touches no tensor memory.
#include <chrono>
#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "process_group/calls/description.h"
#include "process_group/calls/group_view.h"
#include "process_group/calls/request.h"
#include "process_group/calls/tensors.h"

namespace hccl_like {

class CheckedCall;

// Borrows the caller's tensor lists; `kept` owns the lists made for the call.
struct Issue {
  Description description;
  c10::Device device = c10::kCPU;
  c10::SmallVector<Request, 1> requests;  // run concurrently
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
  bool blocking = false;               // wait() blocks the host
  bool handle = false;                 // return a Work although the call is synchronous
  CallNumber number;                   // Diagnosis sets this field and the next two
  bool profiled = false;               // profilers record the call and its waits
  std::string_view line;               // call site (HCCL_LIKE_CALL_SITES); static lifetime
  std::shared_ptr<CheckedCall> check;  // the Issuer sets this; null: the result is not compared
  std::list<Tensors> kept;

  at::TensorList keep(Tensors tensors) { return kept.emplace_back(std::move(tensors)); }
};

struct RankInfo {
  int rank = 0;
  int size = 1;
};

using NestedTensors = std::vector<Tensors>;

// All throw Exceptions of kMisuse or kUnsupported. Tensors and their lists must outlive the Issue.
Issue all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& options);
Issue all_reduce_coalesced(const Tensors& tensors, const c10d::AllreduceCoalescedOptions& options);
Issue reduce(const Tensors& tensors, const c10d::ReduceOptions& options, RankInfo self);
Issue broadcast(const Tensors& tensors, const c10d::BroadcastOptions& options);

Issue reduce_scatter(const Tensors& outputs, const NestedTensors& inputs,
                     const c10d::ReduceScatterOptions& options, RankInfo self);
Issue reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                            const c10d::ReduceScatterOptions& options, RankInfo self);
Issue reduce_scatter_coalesced(at::TensorList outputs, at::TensorList inputs,
                               const c10d::ReduceScatterOptions& options, RankInfo self);

Issue all_gather(const NestedTensors& outputs, const Tensors& inputs,
                 const c10d::AllgatherOptions& options, RankInfo self);
Issue all_gather_single(const at::Tensor& output, const at::Tensor& input,
                        const c10d::AllgatherOptions& options, RankInfo self);
// outputs[rank][tensor]
Issue all_gather_lists(const NestedTensors& outputs, const Tensors& inputs,
                       const c10d::AllgatherOptions& options, RankInfo self);
Issue all_gather_coalesced(at::TensorList outputs, at::TensorList inputs,
                           const c10d::AllgatherOptions& options, RankInfo self);

Issue gather(const NestedTensors& outputs, const Tensors& inputs,
             const c10d::GatherOptions& options, RankInfo self);
Issue scatter(const Tensors& outputs, const NestedTensors& inputs,
              const c10d::ScatterOptions& options, RankInfo self);

Issue all_to_all(const Tensors& outputs, const Tensors& inputs,
                 const c10d::AllToAllOptions& options, RankInfo self);
// Empty splits mean equal parts.
Issue all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                        std::vector<int64_t> output_splits, std::vector<int64_t> input_splits,
                        const c10d::AllToAllOptions& options, RankInfo self);

// The peer may be this rank.
Issue send(const Tensors& tensors, int to, int tag);
// `from` may be kAnySource.
Issue receive(const Tensors& tensors, int from, int tag);
// Also waits for the work queued on `device`.
Issue barrier(const c10d::BarrierOptions& options, c10::Device device);

}  // namespace hccl_like
