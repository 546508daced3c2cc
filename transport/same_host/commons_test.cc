#include "transport/same_host/commons.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/memory/memory_file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hccl_like {
namespace {

PeerCommons seen_by_a_peer(const Commons& commons) {
  return PeerCommons(Fd(::fcntl(commons.fd(), F_DUPFD_CLOEXEC, 0)));
}

TEST(Commons, ShowsWhatItsOwnerWrites) {
  Commons commons;
  const PeerCommons peer = seen_by_a_peer(commons);
  const auto a = commons.areas().take(), b = commons.areas().take();
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  std::memset(commons.areas().data(*a), 1, Commons::kAreaBytes);
  std::memset(commons.areas().data(*b), 2, Commons::kAreaBytes);
  EXPECT_EQ(peer.area(*a)[0], std::byte{1});
  EXPECT_EQ(peer.area(*a)[Commons::kAreaBytes - 1], std::byte{1});
  EXPECT_EQ(peer.area(*b)[0], std::byte{2});
}

TEST(Commons, MakesThePagesOfALaneBeforeTheyAreTouched) {
  alignas(4096) static std::byte page[4096];
  if (::madvise(page, sizeof page, MADV_POPULATE_WRITE) != 0)
    GTEST_SKIP() << "a kernel before 5.14";
  Commons commons;
  constexpr size_t kPages = Commons::kStagingBytes / 4096;
  std::byte* const first = commons.staging_buffers().data(0);
  const auto made = [&] {
    std::vector<unsigned char> pages(kPages);
    EXPECT_EQ(::mincore(first, Commons::kStagingBytes, pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char one) { return (one & 1) != 0; });
  };
  EXPECT_EQ(made(), 0);
  ASSERT_EQ(commons.staging_buffers().take(), 0u);
  EXPECT_EQ(made(), kPages);
}

// A peer has the descriptor, or opens the file through /proc.
TEST(Commons, CanBeWrittenByItsOwnerOnly) {
  Commons commons;
  const std::string path = "/proc/self/fd/" + std::to_string(commons.fd());
  const Fd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_GE(opened.get(), 0);
  for (const int fd : {commons.fd(), opened.get()}) {
    void* const mapped =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, Commons::kNotesBegin);
    EXPECT_EQ(mapped, MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
  }
  const PeerCommons peer = seen_by_a_peer(commons);
  const auto area = commons.areas().take();
  ASSERT_TRUE(area);
  *commons.areas().data(*area) = std::byte{7};
  EXPECT_EQ(*peer.area(*area), std::byte{7});
}

// They are done with all uses up to one, and count how often they are asked.
struct SlowReaders final : Readers {
  bool are_done_with(uint32_t use) const override {
    ++asked;
    return use <= done;
  }
  uint32_t done = 0;
  mutable int asked = 0;
};

TEST(Commons, UsesAnAreaAgainWhenNobodyReadsIt) {
  Commons commons;
  const uint32_t first = *commons.areas().take();
  commons.areas().give_back(first);
  EXPECT_EQ(*commons.areas().take(), first);

  const auto readers = std::make_shared<SlowReaders>();
  commons.areas().retire(first, readers, 1);
  const uint32_t second = *commons.areas().take();
  EXPECT_NE(second, first);
  readers->done = 1;
  EXPECT_EQ(*commons.areas().take(), first);
}

TEST(Commons, AsksReadersWithEachThatIsRetiredWhenToldToAndWhereNoAreaIsFree) {
  Commons commons;
  Shelf& areas = commons.areas();
  const uint32_t first = *areas.take(), second = *areas.take();
  const auto readers = std::make_shared<SlowReaders>();
  areas.give_back(second);
  areas.retire(first, readers, 1);
  EXPECT_EQ(*areas.take(), second) << "one was free";
  EXPECT_EQ(readers->asked, 0);
  const uint32_t third = *areas.take();
  EXPECT_NE(third, first) << "it is still read";
  EXPECT_EQ(readers->asked, 1);

  readers->done = 1;
  areas.retire(third, readers, 2);
  EXPECT_EQ(readers->asked, 2) << "those of the first, not of the one that has just come";
  EXPECT_EQ(*areas.take(), first);
  EXPECT_EQ(readers->asked, 2) << "it was known to be free";

  // The one that came back last is the one that is found first, if those of the others are asked
  // before.
  readers->done = 2;
  areas.give_back(second);
  EXPECT_EQ(*areas.take(/*asks_first=*/true), third);
  EXPECT_EQ(readers->asked, 3);
}

TEST(Commons, ComesToAnEnd) {
  Commons commons;
  for (uint32_t i = 0; i < Commons::kAreas; ++i) ASSERT_EQ(commons.areas().take(), i);
  EXPECT_EQ(commons.areas().take(), std::nullopt);
  commons.areas().give_back(7);
  EXPECT_EQ(commons.areas().take(), 7u);
}

TEST(Commons, RefusesMemoryThatCouldShrink) {
  Fd memory = make_shared_memory();
  ASSERT_EQ(::ftruncate(memory.get(), Commons::kBytes), 0);
  EXPECT_THROW(PeerCommons(std::move(memory)), Exception);
}

TEST(CommonsDeathTest, APeerCannotWrite) {
  Commons commons;
  const PeerCommons peer = seen_by_a_peer(commons);
  EXPECT_DEATH(*const_cast<std::byte*>(peer.area(0)) = std::byte{1}, "");
}

}  // namespace
}  // namespace hccl_like
