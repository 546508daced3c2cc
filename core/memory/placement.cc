#include "core/memory/placement.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "core/base/fd.h"
#include "core/memory/mapping.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace hccl_like {
namespace {

constexpr int kPreferred = 1;  // MPOL_PREFERRED
constexpr const char* kNodes = "/sys/devices/system/node/online";

// The list is "0" for one node, else e.g. "0-1" or "0,2".
bool has_several_nodes(const char* nodes) {
  const Fd list(::open(nodes, O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text;
  const ssize_t bytes = list.valid() ? ::read(list.get(), text.data(), text.size()) : 0;
  const std::string_view read(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return read.find_first_of(",-") != std::string_view::npos;
}

bool prefer(std::span<std::byte> memory, unsigned node) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 1024 / kBits> mask{};
  if (node >= mask.size() * kBits) return false;
  mask[node / kBits] = 1UL << node % kBits;
  // The kernel uses one bit fewer than the argument.
  return ::syscall(SYS_mbind, memory.data(), memory.size(), kPreferred, mask.data(),
                   mask.size() * kBits + 1, 0) == 0;
}

}  // namespace

std::optional<unsigned> place_near_me(std::span<std::byte> memory) {
  return place_near_me(memory, kNodes);
}

std::optional<unsigned> place_near_me(std::span<std::byte> memory, const char* nodes) {
  unsigned core = 0, node = 0;
  if (!has_several_nodes(nodes) || ::getcpu(&core, &node) != 0 || !prefer(memory, node))
    return std::nullopt;
  return node;
}

std::optional<unsigned> place_near_me(int memory, size_t bytes) {
  if (!has_several_nodes(kNodes)) return std::nullopt;
  // The policy of a range of a shared file stays with the file.
  void* const view =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
  if (view == MAP_FAILED) return std::nullopt;
  const Mapping mapping(view, bytes);
  return place_near_me(mapping.span(), kNodes);
}

bool use_huge_pages(std::span<std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const size_t front = -begin % kHugePage;
  if (memory.size() < front + kHugePage) return false;
  const size_t bytes = (memory.size() - front) / kHugePage * kHugePage;
  std::byte* const first = memory.data() + front;
  // In "madvise" mode, the first touch makes huge pages.
  (void)::madvise(first, bytes, MADV_HUGEPAGE);
  return ::madvise(first, bytes, MADV_COLLAPSE) == 0;
}

}  // namespace hccl_like
