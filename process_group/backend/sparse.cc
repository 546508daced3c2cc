#include "process_group/backend/sparse.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "process_group/diagnosis/errors.h"

namespace hccl_like {
namespace {

constexpr const char* kWhere = "hccl-like all_reduce";

// Header that ranks exchange: [elements, type, sparse dimensions, dimensions, sizes...].
constexpr int64_t kMostDimensions = 64;
constexpr int64_t kHeader = 4;

at::Tensor header_of(const at::Tensor& tensor) {
  if (tensor.dim() > kMostDimensions) {
    throw_error(ErrorCode::kUnsupported, "sparse tensors of more than " +
                                             std::to_string(kMostDimensions) +
                                             " dimensions are not served; use tensor.to_dense()");
  }
  at::Tensor header = at::zeros({kHeader + kMostDimensions}, at::kLong);
  int64_t* field = header.mutable_data_ptr<int64_t>();
  *field++ = tensor._nnz();
  *field++ = static_cast<int64_t>(tensor.scalar_type());
  *field++ = tensor.sparse_dim();
  *field++ = tensor.dim();
  std::ranges::copy(tensor.sizes(), field);
  return header;
}

// All ranks compare all headers, so all refuse a mismatch.
void check_headers(const at::Tensor& headers, int rank) {
  const at::Tensor mine = headers[rank].slice(0, 1);
  for (int64_t other = 0; other < headers.size(0); ++other) {
    const at::Tensor theirs = headers[other].slice(0, 1);
    if (at::equal(mine, theirs)) continue;
    const auto describe_header = [](const at::Tensor& fields) {
      const int64_t* field = fields.const_data_ptr<int64_t>();
      std::string text = c10::toString(static_cast<c10::ScalarType>(field[0]));
      for (int64_t i = 0; i < field[2]; ++i)
        text += (i ? ", " : "[") + std::to_string(field[3 + i]);
      return text + "] with " + std::to_string(field[1]) + " sparse dimensions";
    };
    throw_misuse("the ranks' sparse tensors differ: rank " + std::to_string(rank) + " has " +
                 describe_header(mine) + ", rank " + std::to_string(other) + " has " +
                 describe_header(theirs));
  }
}

const at::Tensor& checked(const Issuer& issuer, const Tensors& tensors,
                          const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM) {
    throw_error(
        ErrorCode::kUnsupported,
        "sparse tensors can only be added up: use ReduceOp.SUM (and divide the values for a "
        "mean), or tensor.to_dense()");
  }
  if (issuer.in_block()) {
    throw_misuse(
        "a sparse tensor cannot be reduced inside a coalescing block, because its size is agreed "
        "on "
        "first; reduce it outside");
  }
  return tensor;
}

// One step of the reduction, on the caller's current stream. Profilers see each step.
c10::intrusive_ptr<Work> gather(Issuer& issuer, const char* title, const Tensors& outputs,
                                const at::Tensor& input, const c10d::AllreduceOptions& options,
                                RankInfo self) {
  return translated(kWhere, [&] {
    const NestedTensors lists{outputs};
    const Tensors inputs{input};
    Issue issue = all_gather(lists, inputs, {.timeout = options.timeout, .asyncOp = false}, self);
    issue.description.title = title;
    issue.handle = true;
    return issuer.issue(std::move(issue));
  });
}

}  // namespace

bool has_sparse(const Tensors& tensors) {
  return std::ranges::any_of(tensors,
                             [](const at::Tensor& t) { return t.defined() && t.is_sparse(); });
}

c10::intrusive_ptr<Work> sparse_all_reduce(Issuer& issuer, const Tensors& tensors,
                                           const c10d::AllreduceOptions& options, RankInfo self) {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const at::Tensor& tensor =
      translated(kWhere, [&]() -> const at::Tensor& { return checked(issuer, tensors, options); });
  const at::Tensor own = tensor.coalesce();

  // Headers use the tensor's device, in the order of its calls.
  const at::Tensor header = translated(kWhere, [&] { return header_of(own); }).to(tensor.device());
  const at::Tensor gathered = at::empty({self.size, header.numel()}, header.options());
  const auto sizes = gather(issuer, "hccl-like:sparse_all_reduce.sizes", gathered.unbind(0), header,
                            options, self);
  const at::Tensor headers = gathered.cpu();
  sizes->wait();  // in stream order failures are known only now
  translated(kWhere, [&] { check_headers(headers, self.rank); });

  const at::Tensor indices = own._indices().contiguous();
  const at::Tensor values = own._values().contiguous();
  Tensors all_indices, all_values;
  for (int rank = 0; rank < self.size; ++rank) {
    const int64_t elements = headers[rank][0].item<int64_t>();
    auto shape = values.sizes().vec();
    shape[0] = elements;
    all_indices.push_back(at::empty({indices.size(0), elements}, indices.options()));
    all_values.push_back(at::empty(shape, values.options()));
  }
  gather(issuer, "hccl-like:sparse_all_reduce.indices", all_indices, indices, options, self);
  const auto work =
      gather(issuer, "hccl-like:sparse_all_reduce", all_values, values, options, self);
  // Rank order on every rank gives bitwise equal sums. In stream order a failed step leaves index
  // -1, which would make later users access memory out of bounds; clamp_min_ prevents that.
  tensor.copy_(at::_sparse_coo_tensor_unsafe(at::cat(all_indices, 1).clamp_min_(0),
                                             at::cat(all_values, 0), tensor.sizes(),
                                             values.options().layout(at::kSparse))
                   .coalesce());
  work->set_outputs(tensors);
  return work;
}

}  // namespace hccl_like

namespace {

// torch registers this only for the CPU and one accelerator type.
std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> allreduce_sparse_(
    at::TensorList tensors, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const c10::intrusive_ptr<c10d::ReduceOp>& op, const std::optional<at::Tensor>& sparse_indices,
    bool async, int64_t timeout) {
  auto list = tensors.vec();
  const c10d::AllreduceOptions options{.reduceOp = *op,
                                       .timeout = std::chrono::milliseconds(timeout),
                                       .asyncOp = async,
                                       .sparseIndices = sparse_indices};
  // Not allreduce_sparse(), which torch's debug wrapper does not forward.
  auto work = group->getBackend(c10::DeviceType::PrivateUse1)->allreduce(list, options);
  return {std::move(list), std::move(work)};
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, library) {
  library.impl("allreduce_", allreduce_sparse_);
}

}  // namespace
