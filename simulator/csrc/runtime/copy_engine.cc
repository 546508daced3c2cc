#include "runtime/copy_engine.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

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

std::chrono::steady_clock::time_point end_of(size_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const double limit = bytes_a_second();
  if (limit == 0) return now;
  return now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                   std::chrono::duration<double>(static_cast<double>(bytes) / limit));
}

}  // namespace

CopyTime::CopyTime(size_t bytes) : end_(end_of(bytes)) {}

CopyTime::~CopyTime() { std::this_thread::sleep_until(end_); }

}  // namespace torch_sim
