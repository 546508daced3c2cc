#include "process_group/sharing.h"

namespace hccl_like {

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

const at::Tensor* only_tensor(const Side& side) {
  if (side.arrangement == Arrangement::kNone || side.tensors.size() != 1) return nullptr;
  const at::Tensor& tensor = side.tensors.front();
  return tensor.numel() == 0 ? nullptr : &tensor;
}

}  // namespace hccl_like
