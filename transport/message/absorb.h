#pragma once
// Moves message bytes from memory to the destination of a receive.
#include <cstddef>

#include "transport/message/message.h"

namespace hccl_like {

// Copies the next `bytes` of the message, whole elements, or combines them with the operand.
void absorb(Recv& recv, const std::byte* from, size_t bytes);

}  // namespace hccl_like
