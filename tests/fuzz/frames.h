#pragma once
// What a peer writes on a wire, read by a link.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

void frames(Input input);
std::vector<Bytes> frame_seeds();

}  // namespace hccl_like::fuzz
