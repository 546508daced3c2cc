#pragma once
// Bytes of a message that lie in memory, put to where its receive wants them.
#include <cstddef>

#include "transport/message/message.h"

namespace hccl_like {

// The next `bytes` of the message, whole elements: copied, or combined with the operand.
void absorb(Recv& recv, const std::byte* from, size_t bytes);

}  // namespace hccl_like
