#include "runtime/block_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/flaws.h"
#include "memory/strict.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

std::atomic<int64_t> parts{0};

}  // namespace

void touch_block(int device, const void* kernel, size_t bytes) {
  parts.fetch_add(1, std::memory_order_relaxed);
  if (!has(Flaw::kBlockCopies)) return;
  static thread_local std::vector<std::byte> elsewhere(1 << 20);
  WorkTime time(device);
  time.copy(elsewhere.data(), kernel, bytes);
  const Window reads(kernel, bytes);
  for (size_t at = 0; at < bytes; at += elsewhere.size())
    std::memcpy(elsewhere.data(), static_cast<const std::byte*>(kernel) + at,
                std::min(elsewhere.size(), bytes - at));
}

int64_t copies_of_parts() { return parts.load(std::memory_order_relaxed); }

}  // namespace torch_sim
