#include "aten/lending.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "aten/cpu_memory.h"
#include "glue/convert.h"
#include "glue/device_allocator.h"
#include "memory/handle.h"

namespace torch_sim {
namespace {

const c10::Device kHost(c10::DeviceType::CPU);

// A tensor with everything of `like` but another storage.
at::Tensor over(const c10::Storage& storage, const at::Tensor& like, c10::DispatchKey key,
                bool is_view) {
  at::Tensor tensor = is_view ? at::detail::make_tensor<c10::TensorImpl>(
                                    c10::TensorImpl::VIEW, c10::Storage(storage),
                                    c10::DispatchKeySet(key), like.dtype())
                              : at::detail::make_tensor<c10::TensorImpl>(
                                    c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor, const c10::Storage& storage) {
  return over(storage, tensor, c10::DispatchKey::CPU, false);
}

c10::Storage host_storage(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const c10::OptionalDeviceGuard guard(tensor.is_privateuseone() ? std::optional(tensor.device())
                                                                 : std::nullopt);
  void* at = storage->mutable_data();  // a copy on write allocates on the current device
  if (tensor.is_privateuseone()) at = Runtime::get().space().to_kernel(from_handle(at));
  return c10::Storage(c10::Storage::use_byte_size_t(), storage->nbytes(), c10::DataPtr(at, kHost),
                      c10::GetCPUAllocator(), storage->resizable());
}

at::Tensor Lending::lend(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_privateuseone()) {
    if (tensor.is_cpu() && tensor.dim() > 0) saw_host_tensor_ = true;
    bystanders_.push_back(tensor);
    return tensor;
  }
  if (tensor.is_sparse()) return lend_sparse(tensor);
  for (const Loan& loan : loans_)
    if (loan.original.is_same(tensor)) return loan.lent;
  const int device = index_of(tensor.device());
  TORCH_CHECK(device_ < 0 || device == device_,
              "Expected all tensors to be on the same device, but found at least two "
              "devices, sim:",
              device_, " and sim:", device, "!");
  device_ = device;
  at::Tensor lent = host_view(tensor, lend_storage(tensor));
  loans_.push_back({tensor, lent});
  return lent;
}

const c10::Storage& Lending::lend_storage(const at::Tensor& tensor) {
  for (const Store& store : stores_)
    if (store.original.is_alias_of(tensor.storage())) return store.lent;
  c10::Storage lent = host_storage(tensor);
  const void* at = lent.data();
  stores_.push_back({tensor.storage(), std::move(lent), at});
  return stores_.back().lent;
}

std::vector<Window> Lending::open() const {
  std::vector<Window> windows;
  if (protects_memory())
    for (const Store& store : stores_) windows.emplace_back(store.lent.data(), store.lent.nbytes());
  return windows;
}

size_t Lending::in_peers(const WorkTime& time) const {
  size_t bytes = 0;
  for (const Loan& loan : loans_)
    bytes += time.if_peers(loan.lent.storage().data(), loan.lent.nbytes());
  return bytes;
}

void Lending::settle() {
  for (Store& store : stores_) {
    if (store.lent.data() == store.at && store.lent.nbytes() == store.original.nbytes()) continue;
    const size_t bytes = store.lent.nbytes();
    if (store.lent.data() != store.at) {
      c10::Storage fresh = take_storage(store.lent, device_);
      store.original.unsafeGetStorageImpl()->set_data_ptr_noswap(
          fresh.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, device_at(device_))));
    }
    store.original.set_nbytes(bytes);
  }
  for (Loan& loan : loans_) {
    c10::TensorImpl *from = loan.lent.unsafeGetTensorImpl(),
                    *to = loan.original.unsafeGetTensorImpl();
    if (const Store* store = find_lent(from->storage()); !store)
      to->set_storage_keep_dtype(take_storage(from->storage(), device_));
    if (from->is_conj() != to->is_conj()) to->_set_conj(from->is_conj());
    if (from->is_neg() != to->is_neg()) to->_set_neg(from->is_neg());
    const bool same_place = from->storage_offset() == to->storage_offset();
    if (same_place && from->sizes() == to->sizes() && from->strides() == to->strides()) continue;
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  }
  for (const SparseLoan& loan : sparse_loans_) settle_sparse(loan);
}

at::Tensor Lending::take(const at::Tensor& result, int device) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const Loan& loan : loans_)
    if (loan.lent.is_same(result)) return loan.original;
  for (const at::Tensor& bystander : bystanders_)
    if (bystander.is_same(result)) return result;
  if (result.is_sparse()) return take_sparse(result, device);
  TORCH_CHECK(!result.is_nested(),
              "sim: strided nested tensors are not supported; use layout=torch.jagged");
  TORCH_CHECK(
      result.layout() == at::kStrided && !result.is_quantized(),
      "sim: of sparse tensors those in COO format are supported, of quantised ones none, and this "
      "operator's result is ",
      result.toString());
  if (const Store* store = find_lent(result.storage()))
    return over(store->original, result, c10::DispatchKey::PrivateUse1, true);
  c10::Storage owned = take_storage(result.storage(), device);
  stores_.push_back({owned, result.storage(), result.storage().data()});
  return over(owned, result, c10::DispatchKey::PrivateUse1, false);
}

const Lending::Store* Lending::find_lent(const c10::Storage& storage) const {
  for (const Store& store : stores_)
    if (store.lent.is_alias_of(storage)) return &store;
  return nullptr;
}

// The memory becomes the device tensor's; memory that is not the device's (a constant of the
// kernel, say) is copied.
c10::Storage Lending::take_storage(const c10::Storage& storage, int device) {
  c10::StorageImpl* from = storage.unsafeGetStorageImpl();
  const size_t bytes = from->nbytes();
  c10::DataPtr data(nullptr, device_at(device));
  if (is_kernel_memory(from->data_ptr())) {
    data = to_device_memory(from->set_data_ptr(c10::DataPtr(nullptr, kHost)));
  } else if (from->data()) {
    data = allocate_on(device, bytes);
    void* const to = Runtime::get().space().to_kernel(data.get_context());
    const Window writes(to, bytes);
    std::memcpy(to, from->data(), bytes);
  }
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), &device_allocator(),
                      true);
}

}  // namespace torch_sim
