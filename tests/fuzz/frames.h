#pragma once
// Fuzz targets: a link reads the bytes that a peer writes on a wire.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

void frames(Input input);
std::vector<Bytes> frame_seeds();
// Announcements of long messages in slots: what an Inbox asks of a Rendezvous is what that allows.
void slots(Input input);
std::vector<Bytes> slots_seeds();

}  // namespace hccl_like::fuzz
