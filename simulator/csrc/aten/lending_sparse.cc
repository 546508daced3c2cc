// Lending sparse tensors: a sparse tensor of the host around lent indices and values.
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>

#include "aten/lending.h"

namespace torch_sim {
namespace {

// Gives `to` the shape of `from`, and indices and values for it.
void rebuild(at::SparseTensorImpl* to, const at::SparseTensorImpl* from, const at::Tensor& indices,
             const at::Tensor& values) {
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
  to->set_indices_and_values_unsafe(indices, values);
  to->set_coalesced(from->coalesced());
}

at::Tensor make(c10::DispatchKey key, const at::SparseTensorImpl* like, const at::Tensor& indices,
                const at::Tensor& values) {
  at::Tensor made =
      at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like->dtype());
  rebuild(at::sparse::get_sparse_impl(made), like, indices, values);
  return made;
}

}  // namespace

at::Tensor Lending::lend_sparse(const at::Tensor& tensor) {
  for (const SparseLoan& loan : sparse_loans_)
    if (loan.original.is_same(tensor)) return loan.lent;
  const at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(tensor);
  const at::Tensor indices = lend(impl->indices()), values = lend(impl->values());
  const at::Tensor lent = make(c10::DispatchKey::SparseCPU, impl, indices, values);
  sparse_loans_.push_back({tensor, lent, indices, values});
  return lent;
}

void Lending::settle_sparse(const SparseLoan& loan) {
  const at::SparseTensorImpl* from = at::sparse::get_sparse_impl(loan.lent);
  at::SparseTensorImpl* to = at::sparse::get_sparse_impl(loan.original);
  const bool same_parts =
      from->indices().is_same(loan.indices) && from->values().is_same(loan.values);
  const bool same_shape = from->sparse_dim() == to->sparse_dim() && from->sizes() == to->sizes();
  if (same_parts && same_shape && from->coalesced() == to->coalesced()) return;
  rebuild(to, from, take(from->indices(), device_), take(from->values(), device_));
}

at::Tensor Lending::take_sparse(const at::Tensor& result, int device) {
  for (const SparseLoan& loan : sparse_loans_)
    if (loan.lent.is_same(result)) return loan.original;
  const at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(result);
  return make(c10::DispatchKey::SparsePrivateUse1, impl, take(impl->indices(), device),
              take(impl->values(), device));
}

}  // namespace torch_sim
