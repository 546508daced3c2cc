#include "memory/handle.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace torch_sim {
namespace {

// An odd number has an inverse modulo 2^64. This one spreads adjacent pointers far apart.
constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;

constexpr uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;  // three bits are right; each step doubles them
  for (int step = 0; step < 5; ++step) x *= 2 - odd * x;
  return x;
}
static_assert(kSpread * inverse(kSpread) == 1);

bool opaque() {
  static const bool set = [] {
    const char* text = std::getenv("TORCH_SIM_OPAQUE");
    return text && std::string_view(text) == "1";
  }();
  return set;
}

void* times(const void* pointer, uint64_t factor) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) * factor);
}

}  // namespace

void* to_handle(void* pointer) { return opaque() ? times(pointer, kSpread) : pointer; }

void* from_handle(const void* handle) {
  return opaque() ? times(handle, inverse(kSpread)) : const_cast<void*>(handle);
}

}  // namespace torch_sim
