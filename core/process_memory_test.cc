#include "core/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <vector>

#include "core/testing/idle_child.h"

namespace hccl_like {
namespace {

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

TEST(ReadProcess, CopiesWhatLiesInAnother) {
  std::vector<uint32_t> numbers(100'003), copy(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 7u);
  const std::vector<uint32_t> expected = numbers;
  IdleChild child;  // keeps what there was when it was made
  std::fill(numbers.begin(), numbers.end(), 0u);
  EXPECT_TRUE(read_process(child.pid(), reinterpret_cast<std::byte*>(copy.data()),
                           address_of(numbers.data()), numbers.size() * sizeof(uint32_t)));
  EXPECT_EQ(child.end(), 0);
  EXPECT_EQ(copy, expected);
  std::byte one{};
  EXPECT_FALSE(read_process(child.pid(), &one, address_of(&one), 1)) << "it is gone";
  EXPECT_EQ(errno, ESRCH);
}

TEST(ReadProcess, TellsWhereNothingLies) {
  constexpr size_t kPage = 4096;
  void* const memory =
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<char*>(memory) + kPage, kPage), 0);
  std::vector<std::byte> copy(2 * kPage);
  EXPECT_TRUE(read_process(::getpid(), copy.data(), address_of(memory), kPage));
  EXPECT_FALSE(read_process(::getpid(), copy.data(), address_of(memory), 2 * kPage));
  EXPECT_EQ(errno, EFAULT);
  ::munmap(memory, kPage);
}

}  // namespace
}  // namespace hccl_like
