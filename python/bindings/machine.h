#pragma once
#include <torch/csrc/utils/pybind.h>

#include "core/machine/machine.h"

namespace hccl_like {

// {"sockets": 2, ..., "nics": [{"name": "eth0", ...}]}. The caller holds the GIL.
pybind11::dict as_dict(const Machine& machine);

}  // namespace hccl_like
