#include "runtime/copy_engine.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace torch_sim {
namespace {

double bytes_a_second() {
  static const double limit = [] {
    const char* text = std::getenv("TORCH_SIM_COPY_BANDWIDTH");
    if (!text || !*text) return 0.0;
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (*end || !(value >= 1))
      throw std::invalid_argument(std::string("TORCH_SIM_COPY_BANDWIDTH=") + text +
                                  " must be a number of bytes a second");
    return value;
  }();
  return limit;
}

using Clock = std::chrono::steady_clock;

// How much later than it should the thread woke after its last copy. A copy engine has no scheduler
// that would wake it, so the next copy gets that back.
thread_local Clock::duration overslept{};

Clock::time_point end_of(size_t bytes) {
  const auto now = Clock::now();
  const double limit = bytes_a_second();
  if (limit == 0) return now;
  return now - std::exchange(overslept, {}) +
         std::chrono::duration_cast<Clock::duration>(
             std::chrono::duration<double>(static_cast<double>(bytes) / limit));
}

}  // namespace

CopyTime::CopyTime(size_t bytes) : end_(end_of(bytes)) {}

CopyTime::~CopyTime() {
  if (end_ <= Clock::now()) return;  // the copy itself took that long
  std::this_thread::sleep_until(end_);
  overslept = Clock::now() - end_;
}

}  // namespace torch_sim
