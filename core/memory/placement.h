#pragma once
// Placement of memory: NUMA node and huge pages.
#include <cstddef>
#include <optional>
#include <span>

namespace hccl_like {

// Prefers the calling thread's NUMA node for the untouched pages of `memory`, whichever thread
// touches them first. A full node falls back to others. For a shared file the policy applies to all
// mappings. Returns the node, or nothing if there is only one or the system refuses: first touch
// decides then.
std::optional<unsigned> place_near_me(std::span<std::byte> memory);
// For tests: `nodes` is the path of the node list.
std::optional<unsigned> place_near_me(std::span<std::byte> memory, const char* nodes);
// For the first `bytes` of a memory file, mapped or not.
std::optional<unsigned> place_near_me(int memory, size_t bytes);

// On the supported processors.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Requests huge pages for the aligned part of `memory`, which must all be in use later. Makes them
// now if possible and returns true, else the kernel decides at each fault. 50 us if refused.
bool use_huge_pages(std::span<std::byte> memory);

}  // namespace hccl_like
