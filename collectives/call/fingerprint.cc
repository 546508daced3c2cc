#include "collectives/call/fingerprint.h"

#include <sstream>

namespace hccl_like {

std::string describe_fingerprint(uint64_t encoded, bool with_site) {
  const auto collective = static_cast<uint32_t>(encoded & 15);
  const auto type = static_cast<uint32_t>(encoded >> Fingerprint::kTypeAt & 31);
  const auto op = static_cast<uint32_t>(encoded >> Fingerprint::kOpAt & 15);
  const int root = static_cast<int>(encoded >> Fingerprint::kRootAt & 0xffff) - 1;
  // Received over a wire: any bits are possible.
  if (collective >= kCollectives || type >= kDataTypes || op >= kReduceOps)
    return "an unknown call";
  std::string text(name(static_cast<Collective>(collective)));
  const uint64_t site = encoded >> Fingerprint::kDetailAt & (Fingerprint::kSites - 1);
  std::ostringstream place;
  if (with_site && site != 0) place << " [call site " << std::hex << site << "]";
  if (static_cast<Collective>(collective) == Collective::kBarrier) return text + place.str();
  text += " of " + std::string(name(static_cast<DataType>(type)));
  if (encoded >> Fingerprint::kReducesAt & 1)
    text += " (" + std::string(name(static_cast<ReduceOp>(op))) + ")";
  if (root >= 0) text += " with root " + std::to_string(root);
  return text + place.str();
}

}  // namespace hccl_like
