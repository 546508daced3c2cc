#include "process_group/calls/sharing.h"

#include <memory>
#include <utility>

#include <c10/core/Storage.h>

namespace hccl_like {
namespace {

// Average bytes per tensor.
constexpr size_t kLeastInList = 4 << 10;

// Keeps storage alive while a peer may write to it after a failure. Null if the program freed the
// tensor, which stream order allows. Pending's weak reference keeps `storage` valid.
std::shared_ptr<void> hold_storage(void* storage) {
  const auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      static_cast<c10::StorageImpl*>(storage));
  auto strong = weak.lock();
  return strong ? std::make_shared<c10::Storage>(std::move(strong)) : nullptr;
}

}  // namespace

bool worth_sharing(const Communicator& communicator, const DeviceAccess& access, const Call& call) {
  // The plugin of one device must not be given a handle of another's.
  const bool readable = communicator.device_mix() == DeviceMix::kAlike || access.is_host();
  return access.direct() && readable && communicator.uses_shared_memory(call);
}

void share(const DeviceAccess& access, const at::Tensor* input, const at::Tensor* output,
           Call& call) {
  call.device = access.plugin();
  call.device_index = access.plugin_index();
  if (input != nullptr) call.shared_input = access.share(*input);
  if (output == nullptr) return;
  call.shared_output = access.share(*output);
  call.output_owner = {output->storage().unsafeGetStorageImpl(), &hold_storage};
}

void share_list(const DeviceAccess& access, std::span<const at::Tensor* const> inputs,
                std::span<const Region> regions, Call& call) {
  // Looking up an allocation costs as much as copying some KiB.
  if (call.input.total_bytes() < kLeastInList * inputs.size()) return;
  SharedRegions shared;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (regions[i].bytes == 0) continue;
    const auto range = inputs[i] == nullptr ? std::nullopt : access.share(*inputs[i]);
    if (!range || !shared.add(regions[i], *range)) return;
  }
  call.shared_regions = std::move(shared);
}

const at::Tensor* only_tensor(const Side& side) {
  if (side.arrangement == Arrangement::kNone || side.tensors.size() != 1) return nullptr;
  const at::Tensor& tensor = side.tensors.front();
  return tensor.numel() == 0 ? nullptr : &tensor;
}

}  // namespace hccl_like
