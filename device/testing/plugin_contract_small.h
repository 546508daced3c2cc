#pragma once
// Contract tests of all_reduce_small. The ranks are streams of one device.
#include <algorithm>
#include <memory>

#include "device/reduce/reduce.h"
#include "device/testing/plugin_contract_fixture.h"
#include "device/testing/plugin_contract_memory.h"

namespace hccl_like {

class SmallRanks {
 public:
  static constexpr int kIndex = 0;
  static constexpr size_t kPayload = HCD_SMALL_BYTES;
  static constexpr uint64_t kFingerprint = 77;

  // A host word that the device writes and reads.
  class Word {
   public:
    explicit Word(const Device& device) {
      if (device.can_allocate_host())
        own_ = device.allocate_host(kIndex, sizeof(uint64_t)).value(),
        at_ = reinterpret_cast<uint64_t*>(own_.data());
      set(0);
    }
    uint64_t* at() { return at_; }
    uint64_t get() const { return std::atomic_ref(*at_).load(); }
    void set(uint64_t value) { std::atomic_ref(*at_).store(value); }

   private:
    alignas(8) uint64_t plain_ = 0;
    MappedRange own_;
    uint64_t* at_ = &plain_;
  };

  struct SmallRank {
    SmallRank(const Device& device, hcd_stream like, int ranks)
        : stream(device.make_stream(kIndex, like).value()),
          area(device.allocate(kIndex, HCD_SMALL_AREA(ranks, kPayload)).value()),
          buffers(device.allocate(kIndex, 2 * kPayload).value()),
          state(device),
          stop(device),
          completed(device) {
      const std::vector<unsigned char> zeros(HCD_SMALL_AREA(ranks, kPayload));
      throw_if(device.copy_from_host(kIndex, {area.data(), 0}, zeros.data(), zeros.size(),
                                     stream.get()));
      throw_if(device.synchronize(kIndex, stream.get()));
    }
    hcd_ref in() { return {buffers.data(), 0}; }
    hcd_ref out() { return {buffers.data(), kPayload}; }

    DeviceStream stream;
    MappedRange area, buffers;
    Word state, stop, completed;
  };

  SmallRanks(const Device& device, hcd_stream like, int ranks) : device_(device) {
    for (int rank = 0; rank < ranks; ++rank)
      all_.push_back(std::make_unique<SmallRank>(device_, like, ranks));
    for (const auto& rank : all_) areas_.push_back({rank->area.data(), 0});
  }
  ~SmallRanks() {
    for (const auto& rank : all_) rank->stop.set(1);  // after a failure others may be awaited
    for (const auto& rank : all_) (void)device_.synchronize(kIndex, rank->stream.get());
  }
  SmallRanks(const SmallRanks&) = delete;
  SmallRanks& operator=(const SmallRanks&) = delete;

  SmallRank& operator[](size_t rank) { return *all_[rank]; }
  std::optional<Error> call(size_t rank, hcd_ref out, size_t elements, DataType type, ReduceOp op,
                            Scaling scales = {}, uint64_t fingerprint = kFingerprint) {
    SmallRank& one = *all_[rank];
    const Device::SmallGroup group{.rank = static_cast<int>(rank),
                                   .payload = kPayload,
                                   .areas = areas_,
                                   .state = one.state.at(),
                                   .stop = one.stop.at(),
                                   .completed = one.completed.at(),
                                   .fingerprint = fingerprint};
    return device_.all_reduce_small(kIndex, group, out, one.in(), elements, type, op, scales,
                                    one.stream.get());
  }
  // Fails if the kernel does not set the word within some seconds.
  void await_state(size_t rank, uint64_t value) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (all_[rank]->state.get() != value && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(all_[rank]->state.get(), value);
  }
  void synchronize(size_t rank) { throw_if(device_.synchronize(kIndex, all_[rank]->stream.get())); }

 private:
  const Device& device_;
  std::vector<std::unique_ptr<SmallRank>> all_;
  std::vector<hcd_ref> areas_;
};

// Calls of different sizes share the areas. The ranks queue them one call after the other, and one
// rank after the other in turn.
TEST_P(PluginContract, MakesSmallAllReductions) {
  if (!device_.can_all_reduce_small()) GTEST_SKIP() << "no all_reduce_small";
  constexpr size_t kRanks = 3;
  SmallRanks all(device_, streams_.back(), kRanks);
  int done = 0;
  size_t turn = 0;
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitXor, ReduceOp::kAvg}) {
      const Reduction& host = reduction(type, op);
      if (!host.valid() || (op == ReduceOp::kAvg && is_integer(type))) continue;
      const Scaling scales = scaling(type, op, kRanks, 1);
      for (const size_t elements : {size_t{1}, size_t{37}, SmallRanks::kPayload / size_of(type),
                                    size_t{0}, HCD_SMALL_BYTES / 2 / size_of(type) + 1}) {
        const size_t bytes = elements * size_of(type);
        const bool in_place = ++turn % 2 == 0;
        std::vector<std::vector<unsigned char>> in(kRanks);
        std::vector<const std::byte*> from;
        bool refused = false;
        for (size_t i = 0; i < kRanks; ++i) {
          in[i].resize(bytes);
          fill_operand(reinterpret_cast<std::byte*>(in[i].data()), type, elements,
                       static_cast<unsigned>(turn + 7 * i));
          from.push_back(reinterpret_cast<const std::byte*>(in[i].data()));
          throw_if(device_.copy_from_host(kIndex, all[i].in(), in[i].data(), bytes,
                                          all[i].stream.get()));
        }
        for (size_t i = 0; i < kRanks && !refused; ++i) {
          const size_t rank = (i + turn) % kRanks;
          const hcd_ref out = in_place ? all[rank].in() : all[rank].out();
          const auto error = all.call(rank, out, elements, type, op, scales);
          refused = error && error->code == ErrorCode::kUnsupported;
          if (!refused) throw_if(error);
        }
        if (refused) continue;
        std::vector<unsigned char> expected(bytes), got(bytes);
        host.combine_all(reinterpret_cast<std::byte*>(expected.data()), nullptr, from, elements,
                         scales);
        for (size_t i = 0; i < kRanks; ++i) {
          const hcd_ref out = in_place ? all[i].in() : all[i].out();
          throw_if(device_.copy_to_host(kIndex, got.data(), out, bytes, all[i].stream.get()));
          all.synchronize(i);
          ASSERT_EQ(got, expected) << name(type) << " " << name(op) << " " << elements;
          EXPECT_EQ(all[i].state.get(), 0u);
        }
        ++done;
      }
    }
  }
  EXPECT_GT(done, 0) << "all_reduce_small is there, and can do nothing";
}

// A rank is at most one call ahead of another. Its payloads are there until all have read them.
TEST_P(PluginContract, QueuesManySmallAllReductions) {
  if (!device_.can_all_reduce_small()) GTEST_SKIP() << "no all_reduce_small";
  constexpr uint64_t kCalls = 100;
  SmallRanks all(device_, streams_.back(), 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    const std::vector<uint64_t> ones(SmallRanks::kPayload / sizeof(uint64_t), 1);
    throw_if(device_.copy_from_host(kIndex, all[rank].in(), ones.data(), SmallRanks::kPayload,
                                    all[rank].stream.get()));
    all.synchronize(rank);
  }
  // Each doubles the numbers, which wrap around.
  for (size_t rank = 0; rank < 2; ++rank)
    for (uint64_t i = 0; i < kCalls; ++i)
      throw_if(all.call(rank, all[rank].in(), SmallRanks::kPayload / sizeof(uint64_t) - i,
                        DataType::kUInt64, ReduceOp::kSum));
  std::vector<uint64_t> expected(SmallRanks::kPayload / sizeof(uint64_t)), got(expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    const uint64_t calls = std::min<uint64_t>(kCalls, expected.size() - i);
    expected[i] = calls < 64 ? uint64_t{1} << calls : 0;
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    throw_if(device_.copy_to_host(kIndex, got.data(), all[rank].in(), SmallRanks::kPayload,
                                  all[rank].stream.get()));
    all.synchronize(rank);
    EXPECT_EQ(got, expected) << rank;
    EXPECT_EQ(all[rank].completed.get(), kCalls);
  }
}

TEST_P(PluginContract, EndsSmallAllReductionsThatAreStopped) {
  if (!device_.can_all_reduce_small()) GTEST_SKIP() << "no all_reduce_small";
  SmallRanks all(device_, streams_.back(), 2);
  throw_if(all.call(0, all[0].out(), 10, DataType::kFloat32, ReduceOp::kSum));
  ASSERT_NO_FATAL_FAILURE(all.await_state(0, 1));
  all[0].state.set(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(all[0].state.get(), 2u) << "it waits for the other rank";
  all[0].stop.set(UINT64_MAX);
  all.synchronize(0);
  EXPECT_EQ(all[0].state.get(), 0u);
  throw_if(all.call(0, all[0].out(), 10, DataType::kFloat32, ReduceOp::kSum));
  all.synchronize(0);
  EXPECT_EQ(all[0].state.get(), 0u);
  EXPECT_EQ(all[0].completed.get(), 0u);
  std::vector<unsigned char> got(40);
  throw_if(device_.copy_to_host(kIndex, got.data(), all[0].out(), 40, all[0].stream.get()));
  all.synchronize(0);
  EXPECT_EQ(got, std::vector<unsigned char>(40, 0xff));
}

TEST_P(PluginContract, LetsSmallAllReductionsThatDifferWait) {
  if (!device_.can_all_reduce_small()) GTEST_SKIP() << "no all_reduce_small";
  SmallRanks all(device_, streams_.back(), 2);
  throw_if(all.call(0, all[0].out(), 10, DataType::kFloat32, ReduceOp::kSum, {}, 1));
  throw_if(all.call(1, all[1].out(), 11, DataType::kFloat32, ReduceOp::kSum, {}, 2));
  for (size_t rank = 0; rank < 2; ++rank) ASSERT_NO_FATAL_FAILURE(all.await_state(rank, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(all[rank].state.get(), 1u);
    all[rank].stop.set(1);
    all.synchronize(rank);
    EXPECT_EQ(all[rank].completed.get(), 0u);
  }
}

}  // namespace hccl_like
