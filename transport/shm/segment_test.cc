#include "transport/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr size_t kRing = 1 << 16;

ErrorCode code_of(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Exception& exception) {
    return exception.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kMisuse;
}

Fd memory(off_t bytes, bool reserved, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(reserved ? ::fallocate(fd.get(), 0, 0, bytes) : ::ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(ShmSegment, RoundsRingsToWhatCanBeMappedTwice) {
  EXPECT_EQ(round_ring_bytes(0), 4096u);
  EXPECT_EQ(round_ring_bytes(4096), 4096u);
  EXPECT_EQ(round_ring_bytes(4097), 8192u);
  EXPECT_EQ(round_ring_bytes(size_t{1} << 40), size_t{1} << 30);
}

TEST(ShmSegment, BothEndsSeeTheSameBytesAlsoAcrossTheWrap) {
  ShmSegment one = ShmSegment::create(kRing);
  ShmSegment two = ShmSegment::open(Fd(::fcntl(one.fd(), F_DUPFD_CLOEXEC, 0)), kRing);
  for (int direction : {0, 1}) {
    RingWriter writer = one.writer(direction);
    RingReader reader = two.reader(direction);
    std::vector<char> data(kRing - 10, 'a');
    for (char fill = 'a'; fill < 'e'; ++fill) {
      std::memset(data.data(), fill, data.size());
      data.back() = '!';
      ASSERT_EQ(writer.space(kRing), kRing);
      writer.put(reinterpret_cast<const std::byte*>(data.data()), data.size());
      EXPECT_EQ(reader.available(), 0u) << "not published";
      EXPECT_FALSE(writer.publish());
      ASSERT_EQ(reader.available(), data.size());
      EXPECT_EQ(std::memcmp(reader.data(), data.data(), data.size()), 0);
      reader.drop(data.size());
      EXPECT_FALSE(reader.publish());
    }
  }
}

TEST(ShmSegment, TakesTheMemoryOfARingWhenItIsMade) {
  const ShmSegment segment = ShmSegment::create(kRing);
  const auto bytes = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(segment.fd(), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  EXPECT_EQ(bytes(), 4096u) << "the indices";
  ASSERT_TRUE(segment.make(1, 0, 4096));
  if (bytes() == 4096) GTEST_SKIP() << "a kernel before 5.14";
  EXPECT_EQ(bytes(), 4096u + 4096);
  ASSERT_TRUE(segment.make(1, 4096, kRing - 4096));
  EXPECT_EQ(bytes(), 4096 + kRing);
  ASSERT_TRUE(segment.make(0, 0, kRing));
  EXPECT_EQ(bytes(), 4096 + 2 * kRing);
}

TEST(ShmSegment, CannotBeResizedByAnyone) {
  ShmSegment segment = ShmSegment::create(kRing);
  EXPECT_NE(::ftruncate(segment.fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(segment.fd(), 1 << 30), 0);
  EXPECT_NE(::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(ShmSegment, RefusesMemoryThatCouldFailLater) {
  const off_t right = 4096 + 2 * kRing;
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto refused = [](Fd fd, size_t ring_bytes) {
    return code_of([&] { ShmSegment::open(std::move(fd), ring_bytes); }) == ErrorCode::kPeerLost;
  };
  EXPECT_NO_THROW(ShmSegment::open(memory(right, true, seals), kRing));
  EXPECT_TRUE(refused(memory(right, true, F_SEAL_GROW | F_SEAL_SEAL), kRing)) << "may shrink";
  EXPECT_TRUE(refused(memory(right, false, seals), kRing)) << "not reserved";
  EXPECT_TRUE(refused(memory(right - 4096, true, seals), kRing)) << "too small";
  EXPECT_TRUE(refused(memory(right, true, seals), 2 * kRing)) << "other size than said";
  EXPECT_TRUE(refused(memory(right, true, seals), kRing - 1)) << "not a power of two";
  EXPECT_TRUE(refused(memory(right, true, seals), ~size_t{0})) << "absurd";
  EXPECT_TRUE(refused(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), kRing)) << "not memory";
  EXPECT_TRUE(refused(Fd(), kRing));
}

TEST(ShmSegment, ADamagedIndexIsNoticedByBothSides) {
  ShmSegment segment = ShmSegment::create(kRing);
  auto& indices = *static_cast<RingIndices*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd(), 0));
  RingReader reader = segment.reader(0);
  RingWriter writer = segment.writer(0);
  indices.written.store(kRing + 1);
  EXPECT_EQ(reader.available(), 0u);
  EXPECT_TRUE(reader.damaged());
  indices.read.store(5);
  EXPECT_EQ(writer.space(kRing + 1), 0u);
  EXPECT_TRUE(writer.damaged());
  indices.written.store(0);
  indices.read.store(0);
  EXPECT_EQ(reader.available(), 0u) << "sticky";
  EXPECT_EQ(writer.space(), 0u) << "sticky";
  ::munmap(&indices, 4096);
}

}  // namespace
}  // namespace hccl_like
