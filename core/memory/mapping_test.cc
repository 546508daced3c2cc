#include "core/memory/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

// msync says ENOMEM for addresses that are not mapped.
bool is_mapped(void* address, size_t bytes) { return ::msync(address, bytes, MS_ASYNC) == 0; }

TEST(Mapping, UnmapsAtTheEnd) {
  std::byte* address = nullptr;
  {
    const Mapping mapping = Mapping::map(-1, 8192, kReadWrite, kAnonymous);
    address = mapping.data();
    mapping.span()[8191] = std::byte{7};
    EXPECT_EQ(mapping.size(), 8192u);
    EXPECT_TRUE(is_mapped(address, 8192));
  }
  EXPECT_FALSE(is_mapped(address, 8192));
}

TEST(Mapping, MovesOwnership) {
  Mapping first = Mapping::map(-1, 4096, kReadWrite, kAnonymous);
  std::byte* const address = first.data();
  Mapping second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(second.data(), address);
  second = Mapping();
  EXPECT_FALSE(is_mapped(address, 4096));
}

TEST(Mapping, SaysWhyItFailed) {
  try {
    Mapping::map(-1, 4096, kReadWrite, MAP_SHARED);
    FAIL() << "a shared mapping without a file must fail";
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(),
                 "system: cannot map 4096 bytes of memory: Bad file descriptor (errno 9)");
  }
}

}  // namespace
}  // namespace hccl_like
