#pragma once
// Publishes in a call the memory that local peers can map.
#include <span>

#include "collectives/engine/communicator.h"
#include "process_group/calls/request.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// False if the call is small or involves another host. A few nanoseconds.
bool worth_sharing(const Communicator& communicator, const DeviceAccess& access, const Call& call);

// Fills in the shared fields of `call`. `input` and `output` are contiguous, on the device of
// `access`, and hold a whole side; null if a side is not one non-empty tensor.
void share(const DeviceAccess& access, const at::Tensor* input, const at::Tensor* output,
           Call& call);

// The same for several input tensors; `regions` are their host mappings. Null for an empty tensor.
// Shares all tensors or none.
void share_list(const DeviceAccess& access, std::span<const at::Tensor* const> inputs,
                std::span<const Region> regions, Call& call);

// The only tensor of a side; null if there are several or it is empty.
const at::Tensor* only_tensor(const Side& side);

}  // namespace hccl_like
