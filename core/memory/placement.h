#pragma once
// Where memory lies: near the cores that use it, in pages as large as they come.
#include <cstddef>
#include <optional>
#include <span>

namespace hccl_like {

// Asks that the pages of `memory`, which nobody has touched, come from the NUMA node that the
// calling thread runs on, whoever touches them first; from another one only if that is full. Of a
// shared file this holds for all that map it. Returns the node; nothing where there is but one, or
// the system does not let us choose: then whoever touches a page first decides.
std::optional<unsigned> place_near_me(std::span<std::byte> memory);
// The same with another list of the system's nodes, for tests.
std::optional<unsigned> place_near_me(std::span<std::byte> memory, const char* nodes);
// The same for the first `bytes` of a memory file, which need not be mapped.
std::optional<unsigned> place_near_me(int memory, size_t bytes);

// A huge page, on the processors that we know.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages wherever `memory`, all of which will be used, has room for whole ones: makes
// them now if the system can, else lets it decide with each page. True if they were made. Costs
// some 50 us where the system gives none.
bool use_huge_pages(std::span<std::byte> memory);

}  // namespace hccl_like
