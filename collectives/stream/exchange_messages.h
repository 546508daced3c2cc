#pragma once
// Messages between the ranks that have met in an exchange (Communicator::prepare_exchange).
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/engine/communicator.h"

namespace hccl_like {

// One byte to or from each other rank; nothing if the group has failed. `slice`: a number of 1 or
// more for each use. `bytes`: by rank.
std::vector<std::shared_ptr<Operation>> messages_after(const std::shared_ptr<Operation>& exchange,
                                                       Collective direction, uint32_t slice,
                                                       std::span<std::byte> bytes,
                                                       std::chrono::milliseconds timeout = {});

// Whether `good` is true on all ranks. Blocks; false if the group fails.
bool all_agree(const std::shared_ptr<Operation>& exchange, uint32_t slice, bool good,
               std::chrono::milliseconds timeout = {});

}  // namespace hccl_like
