#include "transport/message/absorb.h"

#include <algorithm>
#include <cstring>

namespace hccl_like {

void absorb(Recv& recv, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const Piece into = recv.into_at.here(recv.into);
    size_t part = std::min(into.bytes, bytes);
    if (recv.combine != nullptr) {
      const Piece operand = recv.operand_at.here(recv.operand);
      part = std::min(part, operand.bytes);
      recv.combine(into.data, operand.data, from, part / recv.element_bytes);
      recv.operand_at.advance(recv.operand, part);
    } else {
      std::memcpy(into.data, from, part);
    }
    recv.into_at.advance(recv.into, part);
    recv.moved += part;
    from += part;
    bytes -= part;
  }
}

}  // namespace hccl_like
