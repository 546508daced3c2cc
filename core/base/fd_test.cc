#include "core/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace hccl_like {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
int open_something() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

static_assert(!std::is_copy_constructible_v<Fd> && std::is_nothrow_move_constructible_v<Fd>);

TEST(Fd, ClosesAtTheEnd) {
  const int raw = open_something();
  {
    Fd fd(raw);
    EXPECT_TRUE(fd.valid());
    EXPECT_EQ(fd.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(Fd, MovesOwnership) {
  Fd first(open_something());
  const int raw = first.get();
  Fd second(std::move(first));
  EXPECT_FALSE(first.valid());
  Fd third(open_something());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(raw));
  EXPECT_EQ(third.get(), raw);
}

TEST(Fd, ReleaseKeepsItOpen) {
  Fd fd(open_something());
  const int raw = fd.release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(is_open(raw));
  fd.reset(raw);
  fd.reset();
  EXPECT_FALSE(is_open(raw));
}

}  // namespace
}  // namespace hccl_like
