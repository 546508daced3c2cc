#include "collectives/engine/way.h"

#include "collectives/board/board_call.h"
#include "collectives/same_host/large_call.h"

namespace hccl_like {

Way way_of(const Call& call, int ranks, Chunks chunks, const WayOptions& options) {
  if (!options.board || options.forced) return Way::kMessages;
  if (board_bytes(call, ranks, chunks)) return Way::kBoard;
  return options.direct && is_large_call(call, ranks) ? Way::kLarge : Way::kMessages;
}

// As rank 0 makes the call, the root if there is one. Nobody looks at the memory.
Way way_of(Collective collective, uint64_t bytes, int ranks, const WayOptions& options) {
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
  return way_of(call, ranks, Chunks::kEqual, options);
}

}  // namespace hccl_like
