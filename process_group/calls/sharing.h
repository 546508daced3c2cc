#pragma once
// Says in a call where peers on this host find its memory.
#include <span>

#include "collectives/engine/communicator.h"
#include "process_group/calls/request.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// Whether it may pay for the call: not if it is small, or goes to another host. A few nanoseconds.
bool worth_sharing(const Communicator& communicator, const DeviceAccess& access, const Call& call);

// Fills in what Call has for it. `input` and `output` are the memory of the whole side, contiguous
// and on the device of `access`; null where a side is not one tensor with something in it.
void share(const DeviceAccess& access, const at::Tensor* input, const at::Tensor* output,
           Call& call);

// The same for an input of several tensors, in the order of `regions`, which are their memory as
// the host sees it; null where there is nothing in one. Nothing is shared unless all of it can be.
void share_list(const DeviceAccess& access, std::span<const at::Tensor* const> inputs,
                std::span<const Region> regions, Call& call);

// The one tensor of a side, or null.
const at::Tensor* only_tensor(const Side& side);

}  // namespace hccl_like
