#pragma once
// The nonces of hellos that were believed: none is believed again.
#include <string>
#include <unordered_set>
#include <utility>

namespace hccl_like {

// Only owners of the door's key can add to it. It keeps the last kKept at least.
class HeardHellos {
 public:
  static constexpr size_t kKept = 1 << 15;

  // False if it was there.
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
