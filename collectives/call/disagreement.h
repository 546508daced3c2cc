#pragma once
// The sentence about two ranks that make different calls: the same on all ranks, whichever of the
// two writes it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// What one of the two does.
struct Claim {
  // "rank 1 passed 4 elements to all_reduce of float32 (sum)": the words before and after the
  // number of elements.
  struct Verb {
    std::string_view before, after;
  };
  static constexpr Verb kPassed{
      "passed", "to"};  // to the call, as the other kinds are about one of its messages
  static constexpr Verb kSent{"sent a message of", "in"};
  static constexpr Verb kExpects{"expects a message of", "in"};
  static constexpr Verb kExchanges{"wants to exchange", "in"};  // with the other rank

  int rank = 0;
  Verb verb = kPassed;
  uint64_t fingerprint = 0;
  size_t bytes = 0;
};

// Whether the two claims differ in what people are told of them. `sites`: fingerprints hold the
// lines of the program.
bool differ(const Claim& one, const Claim& other, bool sites);

// `number` is the call's, and `unseen` says in what the two differ if their claims do not.
std::string disagreement(std::string_view group, uint64_t number, Claim one, Claim other,
                         bool sites, std::string_view unseen);

}  // namespace hccl_like
