#pragma once
// The nonces of verified hellos, to reject replays.
#include <string>
#include <unordered_set>
#include <utility>

namespace hccl_like {

// Only owners of the door key can add to it. Keeps at least the last kKept nonces.
class HeardHellos {
 public:
  static constexpr size_t kKept = 1 << 15;

  // False if `fresh` is known already.
  bool remember(const std::string& fresh) {
    if (recent_.contains(fresh) || older_.contains(fresh)) return false;
    if (recent_.size() >= kKept) older_ = std::exchange(recent_, {});
    recent_.insert(fresh);
    return true;
  }

 private:
  std::unordered_set<std::string> recent_, older_;
};

}  // namespace hccl_like
