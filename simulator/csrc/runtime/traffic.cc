#include "runtime/traffic.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/blocking.h"
#include "runtime/runtime.h"

namespace torch_sim {
namespace {

std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::kCount)> counts;

// In bytes a nanosecond, 0 if there is no limit.
double rate_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end || !(value > 0))
    throw std::invalid_argument(std::string(name) + "=" + text +
                                " must be a number of 1e9 bytes a second");
  return value;
}

struct Rates {
  double link = rate_from_environment("TORCH_SIM_LINK_GBPS");
  double host = rate_from_environment("TORCH_SIM_HOST_GBPS");
  double kernel = rate_from_environment("TORCH_SIM_KERNEL_GBPS");
};
const Rates& rates() {
  static const Rates found;
  return found;
}

// How much later than it should the thread woke after its last piece of work. A device has no
// scheduler that would wake it, so the next piece gets that back if it was queued by then.
thread_local std::chrono::nanoseconds overslept{};

}  // namespace

void add_traffic(Count count, uint64_t amount) {
  counts[static_cast<size_t>(count)].fetch_add(amount, std::memory_order_relaxed);
}

uint64_t traffic(Count count) {
  return counts[static_cast<size_t>(count)].load(std::memory_order_relaxed);
}

void reset_traffic() {
  for (auto& count : counts) count.store(0, std::memory_order_relaxed);
}

void check_rates() { rates(); }

size_t short_work() {
  const Rates& set = rates();
  return set.link + set.host + set.kernel > 0 ? 0 : 32 << 10;
}

WorkTime::WorkTime(int device)
    : device_(device),
      start_(std::max(Clock::now() - std::exchange(overslept, {}), Stream::queued_at())) {}

WorkTime::~WorkTime() {
  if (end_ <= Clock::now()) return;  // the work itself took that long
  const BlockingRegion blocking;
  std::this_thread::sleep_until(end_);
  overslept = Clock::now() - end_;
}

// When the work that each resource has taken so far is over.
struct WorkTime::Occupied {
  std::mutex mutex;
  std::array<std::array<Clock::time_point, kResources>, Runtime::kMostDevices> until{};
};

void WorkTime::occupy(Resource resource, size_t bytes) {
  static auto& occupied = *new Occupied();
  const Rates& set = rates();
  const double rate = std::array{set.link, set.host, set.host, set.kernel}[resource];
  if (rate == 0 || bytes == 0) return;
  const std::chrono::duration<double, std::nano> time(static_cast<double>(bytes) / rate);
  std::lock_guard lock(occupied.mutex);
  Clock::time_point& until = occupied.until[device_][resource];
  until = std::max(until, start_) + std::chrono::ceil<Clock::duration>(time);
  end_ = std::max(end_, until);
}

void WorkTime::copy(const void* to, const void* from, size_t bytes) {
  const AddressSpace& space = Runtime::get().space();
  const size_t peers = if_peers(to, bytes) + if_peers(from, bytes);
  add_traffic(Count::kPeer, peers);
  occupy(kLink, peers);
  if (!space.holds_kernel(from)) {
    add_traffic(Count::kHostToDevice, bytes);
    occupy(kHostToDevice, bytes);
  } else if (!space.holds_kernel(to)) {
    add_traffic(Count::kDeviceToHost, bytes);
    occupy(kDeviceToHost, bytes);
  } else if (peers == 0) {
    add_traffic(Count::kDevice, bytes);
    occupy(kCompute, bytes);
  }
}

void WorkTime::kernel(size_t result, size_t peers) {
  add_traffic(Count::kKernels, 1);
  add_traffic(Count::kDevice, result);
  add_traffic(Count::kPeer, peers);
  occupy(kCompute, result);
  occupy(kLink, peers);
}

size_t WorkTime::if_peers(const void* at, size_t bytes) const {
  Runtime& runtime = Runtime::get();
  if (!runtime.space().holds_kernel(at)) return 0;
  const void* const address = runtime.space().to_device(at);
  if (runtime.space().device_of(address) != device_) return bytes;
  return runtime.device(device_).memory().with_arena(
      address, 1, [&](const Arena* arena) { return arena && arena->is_peers() ? bytes : 0; });
}

}  // namespace torch_sim
