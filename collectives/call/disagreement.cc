#include "collectives/call/disagreement.h"

#include <utility>

#include "collectives/call/fingerprint.h"

namespace hccl_like {
namespace {

// "4 elements"; bytes if the type is unknown or does not divide them.
std::string quantity(uint64_t fingerprint, size_t bytes) {
  const auto type = fingerprint >> Fingerprint::kTypeAt & 31;
  const size_t element = type < kDataTypes ? size_of(static_cast<DataType>(type)) : 1;
  const bool whole = element > 0 && bytes % element == 0 && type < kDataTypes;
  const size_t count = whole ? bytes / element : bytes;
  return std::to_string(count) + (whole ? " element" : " byte") + (count == 1 ? "" : "s");
}

bool is_barrier(uint64_t fingerprint) {
  return static_cast<Collective>(fingerprint & 15) == Collective::kBarrier;
}

std::string amount(const Claim& claim) {
  return std::string(claim.verb.before) + " " + quantity(claim.fingerprint, claim.bytes);
}

std::string clause(const Claim& claim, const std::string& call) {
  const std::string rank = "rank " + std::to_string(claim.rank) + " ";
  if (is_barrier(claim.fingerprint)) return rank + "called " + call;
  return rank + amount(claim) + " " + std::string(claim.verb.after) + " " + call;
}

}  // namespace

bool differ(const Claim& one, const Claim& other, bool sites) {
  return one.bytes != other.bytes || describe_fingerprint(one.fingerprint, sites) !=
                                         describe_fingerprint(other.fingerprint, sites);
}

std::string disagreement(std::string_view group, uint64_t number, Claim one, Claim other,
                         bool sites, std::string_view unseen) {
  if (other.rank < one.rank) std::swap(one, other);
  const std::string first = describe_fingerprint(one.fingerprint, sites);
  const std::string second = describe_fingerprint(other.fingerprint, sites);
  std::string text = "ranks " + std::to_string(one.rank) + " and " + std::to_string(other.rank) +
                     " of group " + std::string(group) + " disagree about call #" +
                     std::to_string(number);
  if (first != second) {
    text += ": " + clause(one, first) + ", " + clause(other, second);
  } else if (!differ(one, other, sites)) {
    text += ", " + first;
    if (!is_barrier(one.fingerprint))
      text += " (" + quantity(one.fingerprint, one.bytes) + " on both)";
    text += ": " + std::string(unseen);
  } else {
    text += ", " + first + ": rank " + std::to_string(one.rank) + " " + amount(one) + ", rank " +
            std::to_string(other.rank) + " " + amount(other);
  }
  return text + ". Every rank must make the same calls in the same order, with the same sizes" +
         (sites ? ", from the same lines (HCCL_LIKE_CALL_SITES)" : "");
}

}  // namespace hccl_like
