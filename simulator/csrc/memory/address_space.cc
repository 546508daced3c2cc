#include "memory/address_space.h"

#include <sys/mman.h>

#include "base/error.h"

namespace torch_sim {
namespace {

constexpr size_t kLargestSpan = size_t{1} << 38;   // 256 GiB of addresses for each device
constexpr size_t kSmallestSpan = size_t{1} << 32;  // where the process' address space is limited

void* reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

AddressSpace::AddressSpace(int devices) {
  for (span_ = kLargestSpan; span_ >= kSmallestSpan; span_ /= 2) {
    total_ = span_ * static_cast<size_t>(devices);
    void* both = reserve(2 * total_);
    if (!both) continue;
    base_ = static_cast<std::byte*>(both);
    distance_ = static_cast<ptrdiff_t>(total_);
    return;
  }
  throw OutOfMemory(
      system_error("sim: no addresses left to reserve for device memory (see ulimit -v)"));
}

}  // namespace torch_sim
