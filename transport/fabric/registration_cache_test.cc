#include "transport/fabric/registration_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace hccl_like {
namespace {

// Counts; memory is an address range, of which nothing is touched.
class Counter final : public Registrar {
 public:
  void* add(const std::byte* data, size_t bytes) override {
    if (bytes > largest) return nullptr;
    added.emplace_back(data, bytes);
    return *live.insert(reinterpret_cast<void*>(added.size())).first;
  }
  void remove(void* registration) override { EXPECT_EQ(live.erase(registration), 1u); }

  std::vector<std::pair<const std::byte*, size_t>> added;
  std::set<void*> live;
  size_t largest = SIZE_MAX;
};

class RegistrationCacheTest : public testing::Test {
 protected:
  static const std::byte* at(size_t address) {
    return reinterpret_cast<const std::byte*>(uintptr_t{0x10000} + address);
  }
  // A piece of somebody's memory.
  void own(size_t begin, size_t bytes, uint64_t identity) {
    owned.push_back({at(begin), bytes, {identity, 7}});
  }
  std::unique_ptr<RegistrationCache> cache(size_t entries, size_t bytes) {
    const auto find = [this](const std::byte* data, size_t asked) -> std::optional<LastingRange> {
      for (const LastingRange& one : owned)
        if (one.data <= data && data + asked <= one.data + one.bytes) return one;
      return std::nullopt;
    };
    return std::make_unique<RegistrationCache>(
        counter, find, RegistrationCache::Limits{.entries = entries, .bytes = bytes});
  }

  Counter counter;
  std::vector<LastingRange> owned;
};

TEST_F(RegistrationCacheTest, APieceIsRegisteredOnceWhateverPartIsAskedFor) {
  own(0, 1000, 1);
  const auto kept = cache(10, 10'000);
  for (size_t begin = 0; begin < 900; begin += 7) {
    const auto use = kept->use(at(begin), 100);
    ASSERT_TRUE(use);
    EXPECT_EQ(use->begin, at(0));
  }
  ASSERT_EQ(counter.added.size(), 1u);
  EXPECT_EQ(counter.added[0], std::pair(at(0), size_t{1000}));
  EXPECT_EQ(kept->stats().entries, 1u);
  EXPECT_EQ(kept->stats().bytes, 1000u);
}

TEST_F(RegistrationCacheTest, MemoryOfNobodyIsRegisteredForOneUse) {
  const auto kept = cache(10, 10'000);
  for (int i = 0; i < 3; ++i) {
    const auto use = kept->use(at(50), 8);
    EXPECT_EQ(use->begin, at(50));
    EXPECT_EQ(counter.live.size(), 1u);
  }
  EXPECT_EQ(counter.added.size(), 3u);
  EXPECT_TRUE(counter.live.empty());
  EXPECT_EQ(kept->stats().entries, 0u);
}

TEST_F(RegistrationCacheTest, OtherMemoryAtTheSameAddressIsNotTakenForWhatWasThere) {
  own(0, 1000, 1);
  own(1000, 1000, 2);
  own(2000, 1000, 3);
  const auto kept = cache(10, 10'000);
  for (const size_t begin : {0u, 1000u, 2000u}) kept->use(at(begin), 1);
  EXPECT_EQ(counter.live.size(), 3u);
  // Freed, and a larger piece has come to lie over the first and half of the second.
  owned = {{at(0), 1500, {4, 7}}, {at(2000), 1000, {3, 7}}};
  EXPECT_EQ(kept->use(at(10), 10)->begin, at(0));
  EXPECT_EQ(counter.added.size(), 4u);
  EXPECT_EQ(counter.live.size(), 2u);
  EXPECT_EQ(kept->stats().bytes, 2500u);
  kept->use(at(2500), 10);
  EXPECT_EQ(counter.added.size(), 4u);
}

TEST_F(RegistrationCacheTest, WhatIsStaleAndInUseIsEndedWithItsUse) {
  own(0, 1000, 1);
  const auto kept = cache(10, 10'000);
  auto use = kept->use(at(0), 1000);
  owned = {{at(0), 1000, {2, 7}}};
  EXPECT_NE(kept->use(at(0), 1000)->handle, use->handle);
  EXPECT_EQ(counter.live.size(), 2u);
  use.reset();
  EXPECT_EQ(counter.live.size(), 1u);
}

TEST_F(RegistrationCacheTest, WhatIsGoneIsEndedWhenSomethingIsRegisteredAndNowAndThen) {
  own(0, 1000, 1);
  own(1000, 1000, 2);
  const auto kept = cache(10, 10'000);
  for (const size_t begin : {0u, 1000u}) kept->use(at(begin), 1);
  owned = {{at(1000), 1000, {2, 7}}, {at(5000), 1000, {3, 7}}};
  kept->use(at(5000), 1);
  EXPECT_EQ(counter.live.size(), 2u);
  EXPECT_EQ(kept->stats().bytes, 2000u);
  owned = {{at(5000), 1000, {3, 7}}};
  const auto held = kept->use(at(5000), 1);
  for (int i = 0; i < 64; ++i) kept->use(at(5000), 1);
  EXPECT_EQ(counter.live.size(), 1u);
  owned.clear();
  own(0, 10, 4);
  kept->use(at(0), 1);
  EXPECT_EQ(counter.live.size(), 2u) << "one of them is in use";
}

TEST_F(RegistrationCacheTest, BeyondItsEntriesTheLeastRecentlyUsedIsEnded) {
  for (size_t i = 0; i < 4; ++i) own(100 * i, 100, i + 1);
  const auto kept = cache(3, 10'000);
  for (const size_t i : {0u, 1u, 2u, 0u, 3u}) kept->use(at(100 * i), 1);
  EXPECT_EQ(counter.added.size(), 4u);
  EXPECT_EQ(counter.live.size(), 3u);
  kept->use(at(0), 1);
  EXPECT_EQ(counter.added.size(), 4u) << "used since";
  kept->use(at(100), 1);
  EXPECT_EQ(counter.added.size(), 5u) << "the oldest";
  EXPECT_EQ(kept->stats().entries, 3u);
}

TEST_F(RegistrationCacheTest, BeyondItsBytesAsManyAreEndedAsItTakes) {
  for (size_t i = 0; i < 5; ++i) own(100 * i, 100, i + 1);
  own(1000, 350, 9);
  const auto kept = cache(100, 500);
  for (size_t i = 0; i < 5; ++i) kept->use(at(100 * i), 1);
  EXPECT_EQ(kept->stats().bytes, 500u);
  kept->use(at(1000), 1);
  EXPECT_EQ(kept->stats().entries, 2u);
  EXPECT_EQ(kept->stats().bytes, 450u);
  EXPECT_EQ(counter.live.size(), 2u);
}

TEST_F(RegistrationCacheTest, WhatIsInUseStaysAndWhatFindsNoRoomServesOnce) {
  own(0, 100, 1);
  own(100, 100, 2);
  own(1000, 600, 3);
  const auto kept = cache(1, 500);
  const auto use = kept->use(at(0), 1);
  for (const size_t begin : {100u, 1000u}) {
    EXPECT_TRUE(kept->use(at(begin), 1));
    EXPECT_EQ(counter.live.size(), 1u);
  }
  EXPECT_EQ(kept->use(at(0), 1), use);
  EXPECT_EQ(counter.added.size(), 3u);
}

TEST_F(RegistrationCacheTest, APartIsRegisteredWhereTheWholePieceCannotBe) {
  own(0, 1000, 1);
  counter.largest = 500;
  const auto kept = cache(10, 10'000);
  const auto use = kept->use(at(100), 400);
  EXPECT_EQ(use->begin, at(100));
  EXPECT_EQ(kept->use(at(100), 501), nullptr);
  EXPECT_EQ(kept->stats().entries, 0u);
}

TEST_F(RegistrationCacheTest, EndsAllThatItKept) {
  own(0, 100, 1);
  auto kept = cache(10, 500);
  const auto use = kept->use(at(0), 1);
  kept->clear();
  EXPECT_EQ(kept->stats().bytes, 0u);
  EXPECT_EQ(counter.live.size(), 1u);
}

}  // namespace
}  // namespace hccl_like
