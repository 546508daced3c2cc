#include "collectives/call/call.h"

namespace hccl_like {

const Layout& chunk_side(const Call& call) {
  return semantics(call.collective).input == Chunking::kOwn ? call.output : call.input;
}

Chunks chunks_of(const Call& call, int ranks) {
  if (call.uneven) return Chunks::kPairs;
  if (cuts_payload(call.collective)) return Chunks::kEqual;
  const Layout& side = chunk_side(call);
  for (int i = 1; i < ranks; ++i)
    if (side.bytes(static_cast<size_t>(i)) != side.bytes(0)) return Chunks::kKnown;
  return Chunks::kEqual;
}

}  // namespace hccl_like
