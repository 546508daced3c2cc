#pragma once
// Shared by the two files of the fake driver.
#include <cuda.h>

#include "device/testing/fake_device.h"

namespace hccl_like::fake_cuda {

// The thread that executes the stream.
fake_device::Worker& worker_of(CUstream stream);
// Whether this thread may allocate memory while a stream captures a graph, as one might always do.
bool may_allocate();

}  // namespace hccl_like::fake_cuda
