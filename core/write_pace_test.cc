#include "core/write_pace.h"

#include <gtest/gtest.h>

#include <vector>

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;
constexpr size_t kWrite = 64 << 10;

// As copy() does: `writes` writes of which each way takes so long. How many went past the caches.
uint32_t past_caches(WritePace& pace, uint32_t writes, int through, int past, size_t bytes = kWrite,
                     size_t all = 0) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < writes; ++i) {
    const WritePace::Choice choice = pace.choose(bytes, all == 0 ? bytes : all);
    const bool goes_past = choice.way == WriteWay::kPastCaches;
    count += goes_past;
    if (choice.measured) pace.learn(bytes, choice, nanoseconds(goes_past ? past : through));
  }
  return count;
}

constexpr uint32_t of(uint64_t bytes) { return static_cast<uint32_t>(bytes / kWrite); }
constexpr uint32_t kFirst = of(3 << 20);
constexpr uint32_t kDecision = kFirst + 1;  // the last is the first past the caches
constexpr uint32_t kPeriod = of(1 << 30), kTrial = of(4 << 20);

TEST(WritePace, GoesPastTheCachesWhereThatIsFarFaster) {
  WritePace pace;
  EXPECT_EQ(past_caches(pace, kFirst, 26'000, 2'000), 0u) << "not tried yet";
  EXPECT_EQ(past_caches(pace, 8192, 26'000, 2'000), 8192u);
}

TEST(WritePace, StaysInTheCachesWhereTheReaderWouldLoseMoreThanTheWriterWins) {
  WritePace pace;
  EXPECT_EQ(past_caches(pace, of(96 << 20), 10'000, 1'500), 4u * 6u)
      << "trials from about 3, 3.5, 7, 14, 28 and 56 MiB on";
}

TEST(WritePace, TriesTheCachesAgainAfterAGiB) {
  WritePace pace;
  past_caches(pace, kDecision, 26'000, 2'000);
  EXPECT_EQ(past_caches(pace, kPeriod, 26'000, 2'000), kPeriod - kTrial);
  EXPECT_EQ(past_caches(pace, kPeriod - kTrial, 26'000, 2'000), kPeriod - kTrial);
}

TEST(WritePace, GoesBackWhenTheCachesHaveBecomeFaster) {
  WritePace pace;
  past_caches(pace, kDecision + kPeriod, 26'000, 2'000);
  past_caches(pace, kPeriod, 2'000, 2'500);
  EXPECT_EQ(past_caches(pace, kFirst, 2'000, 2'500), 4u * 2u) << "two trials";
}

TEST(WritePace, ATrialIsJudgedByItsEnd) {
  WritePace pace;
  past_caches(pace, kDecision, 26'000, 2'000);
  past_caches(pace, kPeriod - kTrial, 26'000, 2'000);
  // At first the memory lies in no reader's cache.
  EXPECT_EQ(past_caches(pace, kTrial * 3 / 4, 3'000, 2'000), 0u);
  EXPECT_EQ(past_caches(pace, kTrial / 4, 26'000, 2'000), 0u);
  EXPECT_EQ(past_caches(pace, 1000, 26'000, 2'000), 1000u);
}

// Cores that move back and forth: the way changes with the distance, and what was learnt at the other one is not forgotten.
TEST(WritePace, LearnsForEachDistance) {
  WritePace pace;
  const auto look = [&](int took) {
    for (int i = 0; i < 5; ++i) pace.looked(nanoseconds(took));
  };
  EXPECT_FALSE(pace.looks());
  look(150);
  EXPECT_EQ(past_caches(pace, kFirst, 26'000, 2'000), 0u) << "not tried yet";
  EXPECT_TRUE(pace.looks());
  EXPECT_EQ(past_caches(pace, 1000, 26'000, 2'000), 1000u);
  look(50);
  EXPECT_EQ(past_caches(pace, 8, 2'000, 2'500), 0u);
  EXPECT_EQ(past_caches(pace, 8, 2'000, 2'500), 4u) << "a trial, in memory that is not new";
  look(150);
  EXPECT_EQ(past_caches(pace, 1000, 26'000, 2'000), 1000u);
  look(50);
  EXPECT_EQ(past_caches(pace, 8, 2'000, 2'500), 4u) << "the next one";
}

// The first writes after a move are slow while looks still tell of the cores as they were.
TEST(WritePace, WhatIsSlowBecauseCoresMoveIsNotLearntForTheDistanceThatWas) {
  // Moves at every place of a sequence of looks, early enough for all writes to be measured.
  for (uint32_t before = 0; before < 40; ++before) {
    WritePace pace;
    uint32_t writes = 0;
    // One write in four is timed with a look.
    const auto write = [&](uint32_t count, int look, int through) {
      uint32_t past = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (++writes % 4 == 0) pace.looked(nanoseconds(look));
        past += past_caches(pace, 1, through, 2'000);
      }
      return past;
    };
    write(kFirst + 20 + before, 50, 2'000);
    write(100, 160, 26'000);
    EXPECT_EQ(write(40, 160, 26'000), 40u) << "it has learnt what to do where they are now";
    write(40, 50, 2'000);
    EXPECT_LE(write(40, 50, 2'000), 8u) << before << ": two trials";
  }
}

// A large call's writes read memory that is in no cache, which takes longer either way.
TEST(WritePace, LearnsForEachSizeOfACall) {
  WritePace pace;
  const auto large = [&](uint32_t writes, int through, int past) {
    return past_caches(pace, writes, through, past, kWrite, /*all=*/64 << 20);
  };
  EXPECT_EQ(past_caches(pace, kDecision + 100, 3'000, 2'000), 12u) << "three trials";
  EXPECT_EQ(large(8, 14'000, 4'000), 0u) << "not tried yet";
  EXPECT_EQ(large(100, 14'000, 4'000), 100u);
  EXPECT_EQ(past_caches(pace, 50, 3'000, 2'000), 0u);
}

TEST(WritePace, WritesToNewMemoryDoNotDecide) {
  for (const int at_first : {2'000, 60'000}) {
    WritePace far, near;
    past_caches(far, of(2 << 20), at_first, 2'000);
    past_caches(near, of(2 << 20), at_first, 2'000);
    past_caches(far, of(1 << 20), 26'000, 2'000);
    past_caches(near, of(1 << 20), 3'000, 2'000);
    EXPECT_EQ(past_caches(far, 100, 26'000, 2'000), 100u) << at_first;
    EXPECT_EQ(past_caches(near, 100, 3'000, 2'000), 4u * 3u) << at_first << ", three trials";
  }
}

TEST(WritePace, OneSlowWriteChangesNothing) {
  WritePace pace;
  past_caches(pace, 200, 2'500, 2'000);
  pace.learn(kWrite, pace.choose(kWrite, kWrite), nanoseconds(4'000'000));
  EXPECT_EQ(pace.choose(kWrite, kWrite).way, WriteWay::kThroughCaches);
}

TEST(WritePace, ShortWritesGoAsTheLongOnesDoAndTeachNothing) {
  WritePace pace;
  EXPECT_EQ(past_caches(pace, 5000, 26'000, 2'000, WritePace::kLeastMeasured - 1), 0u);
  past_caches(pace, 100, 26'000, 2'000);
  EXPECT_EQ(past_caches(pace, 100, 26'000, 2'000, WritePace::kLeastMeasured - 1), 100u);
  EXPECT_EQ(past_caches(pace, 100, 26'000, 2'000, WritePace::kLeast), 100u);
  EXPECT_EQ(past_caches(pace, 100, 26'000, 2'000, WritePace::kLeast - 1), 0u);
}

TEST(WritePace, CopiesWhatItIsTold) {
  WritePace pace;
  for (size_t i = 0; i < 200; ++i) {
    const size_t bytes = i % 3 == 0 ? 100 + i : 5'000 + i;
    std::vector<std::byte> source(bytes), target(bytes + 2, std::byte{0xee});
    for (size_t at = 0; at < bytes; ++at) source[at] = static_cast<std::byte>(at * 7 + i);
    std::vector<std::byte> expected = target;
    std::copy(source.begin(), source.end(), expected.begin() + 1);
    pace.copy(target.data() + 1, source.data(), bytes, bytes);
    ASSERT_EQ(target, expected) << i;
  }
}

// Who reads decides by it how.
TEST(WritePace, TellsTheWayOfAWriteAlsoIfItIsShort) {
  WritePace pace;
  std::vector<std::byte> source(8'000), target(8'000);
  const auto way = [&](size_t bytes) {
    return pace.copy(target.data(), source.data(), bytes, bytes);
  };
  EXPECT_EQ(way(8'000), WriteWay::kThroughCaches);
  EXPECT_EQ(way(48), WriteWay::kThroughCaches);
  past_caches(pace, kFirst, 26'000'000, 2'000);
  past_caches(pace, 8, 26'000'000, 2'000);
  EXPECT_EQ(way(8'000), WriteWay::kPastCaches);
  EXPECT_EQ(way(48), WriteWay::kPastCaches) << "it is published with longer ones";
}

TEST(ToldWay, IsWrittenWhenItChangesAndNotRead) {
  std::atomic<WriteWay> told{WriteWay::kThroughCaches};
  ToldWay way;
  told = WriteWay::kPastCaches;  // as nobody else does: shows whether it is written
  way.tell(told, WriteWay::kThroughCaches);
  EXPECT_EQ(told, WriteWay::kPastCaches) << "nothing new";
  told = WriteWay::kThroughCaches;
  way.tell(told, WriteWay::kPastCaches);
  EXPECT_EQ(told, WriteWay::kPastCaches);
  way.tell(told, WriteWay::kThroughCaches);
  EXPECT_EQ(told, WriteWay::kThroughCaches);
}

TEST(CopyWritten, CopiesWhatItIsToldEitherWay) {
  for (const WriteWay way : {WriteWay::kThroughCaches, WriteWay::kPastCaches}) {
    std::vector<std::byte> source(20'000), target(source.size(), std::byte{0xee});
    for (size_t at = 0; at < source.size(); ++at) source[at] = static_cast<std::byte>(at % 251);
    copy_written(way, target.data(), source.data(), source.size(), source.size());
    EXPECT_EQ(target, source);
  }
}

}  // namespace
}  // namespace hccl_like
