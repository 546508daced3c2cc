#pragma once
// The error text about two ranks that make different calls; equal on all ranks.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// One rank's side.
struct Claim {
  // Words around the number: "rank 1 passed 4 elements to all_reduce of float32 (sum)".
  struct Verb {
    std::string_view before, after;
  };
  // Concerns the call; the other verbs concern one of its messages.
  static constexpr Verb kPassed{"passed", "to"};
  static constexpr Verb kSent{"sent a message of", "in"};
  static constexpr Verb kExpects{"expects a message of", "in"};
  static constexpr Verb kSentLarge{"sent a message of at least", "in"};
  static constexpr Verb kExpectsLarge{"expects a message of at least", "in"};
  static constexpr Verb kExchanges{"wants to exchange", "in"};

  int rank = 0;
  Verb verb = kPassed;
  uint64_t fingerprint = 0;
  size_t bytes = 0;
};

// Whether the text shows a difference. `sites`: fingerprints contain call sites.
bool differ(const Claim& one, const Claim& other, bool sites);

// `number`: of the call. `unseen`: the difference to report if the claims show none.
std::string disagreement(std::string_view group, uint64_t number, Claim one, Claim other,
                         bool sites, std::string_view unseen);

}  // namespace hccl_like
