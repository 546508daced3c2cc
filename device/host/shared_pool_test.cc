#include "device/host/shared_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace hccl_like {
namespace {

std::byte* take(SharedPool& pool, size_t bytes) {
  return static_cast<std::byte*>(pool.allocate(bytes));
}

TEST(SharedPool, GivesWhatPeersCanMap) {
  SharedPool pool;
  std::byte* const a = take(pool, 5000);
  std::byte* const b = take(pool, 1);
  std::memset(a, 1, 5000);
  *b = std::byte{2};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % SharedPool::kGrain, 0u);
  const auto place_a = SharedMemory::find(a + 17, 4000), place_b = SharedMemory::find(b, 1);
  ASSERT_TRUE(place_a && place_b);
  EXPECT_EQ(place_a->token.nonce, place_b->token.nonce) << "small blocks share one piece";
  const SharedMemory seen = SharedMemory::open(place_a->token);
  EXPECT_EQ(seen.data()[place_a->offset], std::byte{1});
  EXPECT_EQ(seen.data()[place_b->offset], std::byte{2});
}

TEST(SharedPool, KeepsItsBlocksWhilePrivate) {
  SharedPool pool;
  std::byte* const block = take(pool, 100'000);
  void* const unused = pool.allocate(size_t{8} << 20);
  pool.free(unused);
  std::memset(block, 7, 100'000);
  for (int turn = 0; turn < 2; ++turn) {
    pool.make_private();
    EXPECT_FALSE(SharedMemory::find(block, 100'000));
    EXPECT_LT(pool.stats().reserved, size_t{8} << 20) << "an unused piece is returned";
    EXPECT_EQ(block[99'999], std::byte{7});
    block[turn] = std::byte{9};
    pool.share();
    const auto place = SharedMemory::find(block, 100'000);
    ASSERT_TRUE(place);
    const SharedMemory seen = SharedMemory::open(place->token);
    EXPECT_EQ(seen.data()[place->offset + static_cast<size_t>(turn)], std::byte{9});
    EXPECT_EQ(seen.data()[place->offset + 99'999], std::byte{7});
    block[50'000] = std::byte{3};
    EXPECT_EQ(seen.data()[place->offset + 50'000], std::byte{3}) << "the same pages";
  }
  pool.free(block);
}

TEST(SharedPool, UsesABlockAgain) {
  SharedPool pool;
  void* const first = pool.allocate(100'000);
  void* const other = pool.allocate(10'000);
  const size_t reserved = pool.stats().reserved;
  pool.free(first);
  EXPECT_EQ(pool.allocate(100'000), first);
  EXPECT_EQ(pool.stats().reserved, reserved);
  EXPECT_NE(first, other);
}

TEST(SharedPool, JoinsLocalPeersThatAreFree) {
  SharedPool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.allocate(size_t{1} << 20));
  const size_t reserved = pool.stats().reserved;
  for (const int i : {0, 2, 1, 3}) pool.free(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(pool.stats().used, 0u);
  EXPECT_NE(pool.allocate(size_t{4} << 20), nullptr);
  EXPECT_EQ(pool.stats().reserved, reserved);
}

TEST(SharedPool, NoTwoBlocksOverlap) {
  SharedPool pool;
  std::mt19937 random(1);
  struct Block {
    std::byte* at;
    size_t bytes;
    std::byte mark;
  };
  std::vector<Block> blocks;
  const auto intact = [](const Block& block) {
    return block.at[0] == block.mark && block.at[block.bytes - 1] == block.mark;
  };
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() < 40 && random() % 2 == 0) {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? 3'000'000 : 20'000);
      const Block block{take(pool, bytes), bytes, std::byte(i)};
      std::memset(block.at, i, bytes);
      blocks.push_back(block);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      EXPECT_TRUE(intact(blocks.back()));
      pool.free(blocks.back().at);
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) {
    EXPECT_TRUE(intact(block));
    pool.free(block.at);
  }
  EXPECT_EQ(pool.stats().used, 0u);
}

TEST(SharedPool, GivesBackWhatItNeedsNoLonger) {
  SharedPool pool;
  const size_t bytes = SharedPool::kKept / 2 + SharedPool::kGrain;
  std::byte* const first = take(pool, bytes);
  std::byte* const second = take(pool, bytes);
  const SharedMemory peer = SharedMemory::open(SharedMemory::find(second, 1)->token);
  *second = std::byte{5};
  pool.free(first);
  EXPECT_EQ(pool.stats().reserved, 2 * bytes);
  pool.free(second);
  EXPECT_EQ(pool.stats().reserved, bytes);
  EXPECT_FALSE(SharedMemory::find(second, 1));
  EXPECT_EQ(*peer.data(), std::byte{0}) << "its pages are gone though a peer maps them";
}

TEST(SharedPool, IgnoresWhatItDidNotAllocate) {
  SharedPool pool;
  int elsewhere = 0;
  std::byte* const block = take(pool, 10'000);
  pool.free(&elsewhere);
  pool.free(nullptr);
  pool.free(block + SharedPool::kGrain);
  EXPECT_EQ(pool.stats().used, 3 * SharedPool::kGrain);
  pool.free(block);
  pool.free(block);
  EXPECT_EQ(pool.stats().used, 0u);
}

TEST(SharedPool, AForkedChildLeavesItsParentsBlocksAlone) {
  SharedPool& parents = SharedPool::of_process();
  std::byte* const block = take(parents, 10'000);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    SharedPool& own = SharedPool::of_process();
    bool good = own.stats().reserved == 0 && !SharedMemory::find(block, 1);
    own.free(block);
    std::byte* const fresh = take(own, 10'000);
    good = good && fresh != block && SharedMemory::find(fresh, 1)->token.process == ::getpid();
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  parents.free(block);
}

TEST(SharedPool, ServesSeveralThreads) {
  SharedPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 300; ++i) {
        std::byte* const block = take(pool, static_cast<size_t>(1 + i * 37));
        std::memset(block, t, static_cast<size_t>(1 + i * 37));
        EXPECT_EQ(block[i * 37], std::byte(t));
        pool.free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().used, 0u);
}

}  // namespace
}  // namespace hccl_like
