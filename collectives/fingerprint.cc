#include "collectives/fingerprint.h"

#include <sstream>

namespace hccl_like {
namespace {

// From the lowest bit: collective 4, type 5, operation 4, reduces 1, root + 1 16, detail 34, of which the lower 18 are the
// site if there is one.
constexpr unsigned kTypeAt = 4, kOpAt = 9, kReducesAt = 13, kRootAt = 14, kDetailAt = 30;
constexpr unsigned kSiteBits = 18;
static_assert(Fingerprint::kSites == 1u << kSiteBits);

}  // namespace

uint64_t Fingerprint::encode() const {
  return static_cast<uint64_t>(collective) | static_cast<uint64_t>(type) << kTypeAt |
         static_cast<uint64_t>(op) << kOpAt | static_cast<uint64_t>(reduces) << kReducesAt |
         static_cast<uint64_t>(static_cast<uint16_t>(root + 1)) << kRootAt |
         (site ? mix(detail, 0) << kSiteBits | *site : mix(detail, 0)) << kDetailAt;
}

std::string describe_fingerprint(uint64_t encoded, bool with_site) {
  const auto collective = static_cast<uint32_t>(encoded & 15);
  const auto type = static_cast<uint32_t>(encoded >> kTypeAt & 31);
  const auto op = static_cast<uint32_t>(encoded >> kOpAt & 15);
  const int root = static_cast<int>(encoded >> kRootAt & 0xffff) - 1;
  // It came over a wire: any bits are possible.
  if (collective >= kCollectives || type >= kDataTypes || op >= kReduceOps)
    return "an unknown call";
  std::string text(name(static_cast<Collective>(collective)));
  const uint64_t site = encoded >> kDetailAt & (Fingerprint::kSites - 1);
  std::ostringstream place;
  if (with_site && site != 0) place << " [call site " << std::hex << site << "]";
  if (static_cast<Collective>(collective) == Collective::kBarrier) return text + place.str();
  text += " of " + std::string(name(static_cast<DataType>(type)));
  if (encoded >> kReducesAt & 1) text += " (" + std::string(name(static_cast<ReduceOp>(op))) + ")";
  if (root >= 0) text += " with root " + std::to_string(root);
  return text + place.str();
}

}  // namespace hccl_like
