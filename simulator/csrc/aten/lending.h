#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "memory/strict.h"
#include "runtime/traffic.h"

namespace torch_sim {

// A host tensor over memory that it does not own: the kernel's address of a device tensor, or any
// host address.
at::Tensor host_view(const at::Tensor& tensor, const c10::Storage& storage);
c10::Storage host_storage(const at::Tensor& tensor);

// Device tensors lent to a host kernel for the length of one call. The kernel gets host tensors
// over the same memory: nothing is copied, tensors that share memory still do, and one tensor given
// twice is still one. Afterwards `settle` brings home what the kernel changed of the tensors
// themselves (sizes, strides, a conjugate bit, a storage it had to enlarge), and `take` turns its
// results into device tensors: an argument into the original, a view of one into a view of the
// original, and new memory, which was device memory all along, into a tensor that owns it. A sparse
// tensor (COO) is lent and taken as its indices and values are.
class Lending {
 public:
  // The host tensor for a device tensor; host tensors and undefined ones as they are. All device
  // tensors must be on one device.
  at::Tensor lend(const at::Tensor& tensor);
  // Access to their memory where it is protected. For the time of the kernel.
  std::vector<Window> open() const;
  // Bytes of the tensors that lie in peers' memory.
  size_t in_peers(const WorkTime& time) const;
  void settle();
  at::Tensor take(const at::Tensor& result, int device);

  // Of the tensors lent, -1 if there were none.
  int device() const { return device_; }
  // A host tensor with dimensions was among the arguments.
  bool saw_host_tensor() const { return saw_host_tensor_; }

 private:
  struct Store {
    c10::Storage original, lent;
    const void* at;
  };
  struct Loan {
    at::Tensor original, lent;
  };
  struct SparseLoan {
    at::Tensor original, lent, indices, values;  // the latter two as they were lent
  };

  at::Tensor lend_sparse(const at::Tensor& tensor);
  void settle_sparse(const SparseLoan& loan);
  at::Tensor take_sparse(const at::Tensor& result, int device);

  const c10::Storage& lend_storage(const at::Tensor& tensor);
  const Store* find_lent(const c10::Storage& storage) const;
  c10::Storage take_storage(const c10::Storage& storage, int device);

  int device_ = -1;
  bool saw_host_tensor_ = false;
  c10::SmallVector<Store, 8> stores_;
  c10::SmallVector<Loan, 8> loans_;
  c10::SmallVector<SparseLoan, 2> sparse_loans_;
  c10::SmallVector<at::Tensor, 2> bystanders_;  // host tensors, which stay what they are
};

}  // namespace torch_sim
