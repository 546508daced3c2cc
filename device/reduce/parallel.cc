#include "device/reduce/parallel.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace hccl_like {
namespace {

// Of the destination. Small enough that nobody waits long for the last part of another, large
// enough that taking one costs nothing. A multiple of a page and of every element's size.
constexpr size_t kPartBytes = 256 << 10;
// Kernels take their sources as one array; more of them than this are rare, and are not divided.
constexpr size_t kMostSources = 64;

// pass(first, elements) for parts of all elements.
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
