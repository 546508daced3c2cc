#include "device/reduce/parallel.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace hccl_like {
namespace {

// Bytes of the destination. Small enough for a short wait for the last part, large enough to hide
// the cost of claiming one. A multiple of a page and of every element size.
constexpr size_t kPartBytes = 256 << 10;
// More sources are rare and stay undivided.
constexpr size_t kMostSources = 64;

// Calls pass(first, elements) for parts that cover all elements.
template <class Pass>
void divide(Division division, size_t elements, size_t element_bytes, const Pass& pass) {
  const size_t each = kPartBytes / element_bytes;
  const size_t parts = (elements + each - 1) / each;
  if (division.threads < 2 || parts < 2 || parts > UINT32_MAX) return pass(0, elements);
  division.thread_pool.run(division.threads, static_cast<uint32_t>(parts), [&](uint32_t part) {
    const size_t first = part * each;
    pass(first, std::min(each, elements - first));
  });
}

}  // namespace

void parallel_combine(Division division, Combine kernel, std::byte* dst, const std::byte* a,
                      const std::byte* b, size_t elements, size_t element_bytes) {
  divide(division, elements, element_bytes, [&](size_t first, size_t count) {
    const size_t at = first * element_bytes;
    kernel(dst + at, a + at, b + at, count);
  });
}

void parallel_combine_many(Division division, CombineMany kernel, std::byte* dst,
                           std::span<const std::byte* const> sources, size_t elements,
                           size_t element_bytes) {
  if (sources.size() > kMostSources) return kernel(dst, sources, elements);
  divide(division, elements, element_bytes, [&](size_t first, size_t count) {
    std::array<const std::byte*, kMostSources> moved;
    for (size_t i = 0; i < sources.size(); ++i) moved[i] = sources[i] + first * element_bytes;
    kernel(dst + first * element_bytes, std::span(moved).first(sources.size()), count);
  });
}

void parallel_copy(Division division, std::byte* dst, const std::byte* src, size_t bytes) {
  divide(division, bytes, 1,
         [&](size_t first, size_t count) { std::memcpy(dst + first, src + first, count); });
}

}  // namespace hccl_like
