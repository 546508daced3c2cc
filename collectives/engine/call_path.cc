#include "collectives/engine/call_path.h"

#include "collectives/board/board_call.h"
#include "collectives/same_host/large_call.h"

namespace hccl_like {

CallPath call_path(const Call& call, int ranks, Chunks chunks, const CallPathOptions& options) {
  if (!options.board || options.forced) return CallPath::kMessages;
  if (board_bytes(call, ranks, chunks)) return CallPath::kBoard;
  return options.direct && is_large_call(call, ranks) ? CallPath::kLarge : CallPath::kMessages;
}

// Assumes rank 0, and rank 0 as the root if there is one. Does not access memory.
CallPath call_path(Collective collective, uint64_t bytes, int ranks,
                   const CallPathOptions& options) {
  using enum Collective;
  const auto all = static_cast<size_t>(ranks);
  const Region whole{nullptr, bytes / all * all};
  const Region part{nullptr, bytes / all};
  const Layout chunks = Layout::even(whole, all, 1);
  const Layout own = Layout::single({&part, 1}, 0, 1);
  Call call{.collective = collective};
  switch (collective) {
    case kAllGather:
    case kGather:
      call.input = own, call.output = chunks;
      break;
    case kReduceScatter:
    case kScatter:
      call.input = chunks, call.output = own;
      break;
    case kAllToAll:
      call.input = call.output = chunks;
      break;
    case kBarrier:
      break;
    default:
      call.input = call.output = Layout::even(Region{nullptr, bytes}, 1, 1);
  }
  return call_path(call, ranks, Chunks::kEqual, options);
}

}  // namespace hccl_like
