#pragma once
// A point on the steady clock at which a wait ends.
#include <algorithm>
#include <chrono>
#include <compare>
#include <limits>

namespace hccl_like {

// A value type. never() is later than every other deadline.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() noexcept { return Deadline(Clock::time_point::max()); }
  static Deadline at(Clock::time_point time) noexcept { return Deadline(time); }
  // Saturates to never(). A negative `wait` has already expired.
  static Deadline after(std::chrono::milliseconds wait) noexcept {
    const auto now = Clock::now();
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
    return wait >= left ? never() : Deadline(now + wait);
  }

  bool is_never() const noexcept { return time_ == Clock::time_point::max(); }
  bool expired() const noexcept { return !is_never() && Clock::now() >= time_; }

  // Milliseconds for poll and epoll_wait: -1 for never, 0 once expired, else rounded up to avoid a
  // spin through the last millisecond.
  int remaining() const noexcept {
    if (is_never()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time_ - Clock::now()).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, std::numeric_limits<int>::max()));
  }

  Clock::time_point time_point() const noexcept { return time_; }

  friend auto operator<=>(const Deadline&, const Deadline&) = default;

 private:
  explicit Deadline(Clock::time_point time) noexcept : time_(time) {}
  Clock::time_point time_;
};

inline Deadline earliest(Deadline a, Deadline b) noexcept { return std::min(a, b); }

}  // namespace hccl_like
