#include "process_group/sharing.h"

namespace hccl_like {
namespace {

// Bytes of each tensor, on average.
constexpr size_t kLeastInList = 4 << 10;

}  // namespace

bool worth_sharing(const Communicator& communicator, const DeviceAccess& access, const Call& call) {
  return access.direct() && communicator.uses_shared_memory(call);
}

void share(const DeviceAccess& access, const at::Tensor* input, const at::Tensor* output,
           Call& call) {
  call.device = access.plugin();
  call.device_index = access.plugin_index();
  if (input != nullptr) call.shared_input = access.share(*input);
  if (output != nullptr) call.shared_output = access.share(*output);
}

void share_list(const DeviceAccess& access, std::span<const at::Tensor* const> inputs,
                std::span<const Region> regions, Call& call) {
  // To find a tensor in its allocation takes as long as to copy some KiB.
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
