#pragma once
// What the two files of the fake driver share.
#include <cuda.h>

#include "device/fake_device.h"

namespace hccl_like::fake_cuda {

// The thread that is a stream.
fake_device::Worker& worker_of(CUstream stream);

}  // namespace hccl_like::fake_cuda
