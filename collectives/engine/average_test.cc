// Averages and premul-sums near the largest number of every float type: exactly, by every
// algorithm, on the board and direct.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"
#include "device/testing/reduce_reference.h"

namespace hccl_like {
namespace {

using namespace testing;

// A type, and a large number of it: twice that overflows, and all multiples of its eighth up to it
// are exact.
struct Type {
  DataType type;
  double large;
  void (*store)(std::byte*, double);
};
template <class Reference>
void store(std::byte* to, double value) {
  Reference::store(to, static_cast<typename Reference::Value>(value));
}
namespace ref = reduce_reference;
const Type kTypes[] = {{DataType::kFloat32, 0x1.8p127, store<ref::Float<float>>},
                       {DataType::kFloat64, 0x1.8p1023, store<ref::Float<double>>},
                       {DataType::kFloat16, 0x1.8p15, store<ref::Float16>},
                       {DataType::kBFloat16, 0x1.8p127, store<ref::BFloat16>},
                       {DataType::kFloat8E4M3FN, 256, store<ref::Float8E4M3FN>},
                       {DataType::kFloat8E5M2, 0x1p15, store<ref::Float8E5M2>}};

// Memory that peers can map.
class Mapped {
 public:
  explicit Mapped(size_t bytes)
      : data_(static_cast<std::byte*>(SharedPool::of_process().allocate(bytes))), bytes_(bytes) {
    std::memset(data_, 0x5a, bytes);
  }
  ~Mapped() { SharedPool::of_process().free(data_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  Region region() const { return {data_, bytes_}; }
  Region part(size_t i, size_t bytes) const { return {data_ + i * bytes, bytes}; }
  void set(const std::vector<std::byte>& to) { std::memcpy(data_, to.data(), bytes_); }

 private:
  std::byte* data_;
  size_t bytes_;
};

bool equal(Region actual, const std::vector<std::byte>& expected) {
  return std::memcmp(actual.data, expected.data(), expected.size()) == 0;
}

// Element i of an array, by i modulo 4.
using Pattern = std::array<double, 4>;
std::vector<std::byte> filled(const Type& type, size_t count, const Pattern& pattern) {
  const size_t size = size_of(type.type);
  std::vector<std::byte> bytes(count * size);
  for (size_t i = 0; i < std::min<size_t>(count, 4); ++i)
    type.store(bytes.data() + i * size, pattern[i]);
  for (size_t i = 4 * size; i < bytes.size(); ++i) bytes[i] = bytes[i - 4 * size];
  return bytes;
}

// Inputs and expected results of a reduction that scales: large numbers, and small ones. Each input
// must be scaled exactly once, whichever rank gives it.
struct Sum {
  ReduceOp op;
  double factor;
  Pattern given(const Type& type, int rank, int ranks) const {
    const double n = ranks;
    return {type.large, -type.large, rank == 0 ? n : 0, rank == ranks - 1 ? 2 * n : 0};
  }
  Pattern expected(const Type& type, int ranks) const {
    const double by = op == ReduceOp::kAvg ? 1 : ranks * factor;
    return {by * type.large, -by * type.large, by, 2 * by};
  }
};
const Sum kSums[] = {{ReduceOp::kAvg, 1}, {ReduceOp::kPreMulSum, 0.125}};

struct Setting {
  Collective collective;
  int root = 0;
  bool in_place = false;
  Sharing sharing = Sharing::kNobody;
};

// `count`: elements of the result.
void expect_exact(Communicator& group, const Setting& setting, const Type& type, const Sum& sum,
                  size_t count) {
  const int ranks = group.size(), rank = group.rank();
  const auto own = static_cast<size_t>(rank);
  const bool scatters = setting.collective == Collective::kReduceScatter;
  const size_t chunks = scatters ? static_cast<size_t>(ranks) : 1, size = size_of(type.type);
  const auto given = filled(type, count * chunks, sum.given(type, rank, ranks));
  // The pattern begins anew in every chunk if these are multiples of it.
  const auto all = filled(type, count * chunks, sum.expected(type, ranks));
  const auto begin = all.begin() + static_cast<ptrdiff_t>(scatters ? own * count * size : 0);
  const std::vector expected(begin, begin + static_cast<ptrdiff_t>(count * size));

  Mapped in(count * chunks * size), out(count * size);
  in.set(given);
  const Region result = !setting.in_place ? out.region()
                        : scatters        ? in.part(own, count * size)
                                          : in.region();
  const bool gets = setting.collective != Collective::kReduce || rank == setting.root;
  Call call{.collective = setting.collective,
            .type = type.type,
            .op = sum.op,
            .factor = sum.factor,
            .root = setting.root,
            .input = Layout::even(in.region(), chunks, size)};
  if (scatters)
    call.output = Layout::single({&result, 1}, own, size);
  else if (gets)
    call.output = Layout::even(result, 1, size);
  share(call, setting.sharing, rank, in.region(), result);
  group.run(call);
  const std::string where = std::string(name(setting.collective)) + " of " + std::to_string(count) +
                            " " + std::string(name(type.type)) + ", " + std::string(name(sum.op)) +
                            (setting.in_place ? ", in place" : "");
  ASSERT_TRUE(!gets || equal(result, expected)) << where;
  ASSERT_TRUE((setting.in_place && gets) || equal(in.region(), given)) << where << ": the input";
}

void expect_all_exact(Communicator& group, Sharing sharing, std::initializer_list<size_t> counts) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce})
    for (const bool in_place : {false, true})
      for (const size_t count : counts)
        for (const Type& type : kTypes)
          for (const Sum& sum : kSums)
            expect_exact(group, {collective, group.size() - 1, in_place, sharing}, type, sum,
                         count);
}

// Every algorithm that fits the group, forced.
void expect_all_exact_by_every_algorithm(Communicator& group, const Hosts& hosts) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce})
    for (const Algorithm& algorithm : algorithms(collective)) {
      if (!algorithm.fits(hosts)) continue;
      SCOPED_TRACE(std::string(algorithm.name));
      group.force(ForcedAlgorithms::parse(std::string(name(collective)) + ':' +
                                          std::string(algorithm.name)));
      for (const bool in_place : {false, true})
        for (const size_t count : {size_t{4}, size_t{4100}})
          for (const Type& type : kTypes)
            for (const Sum& sum : kSums)
              expect_exact(group, {collective, group.size() - 1, in_place}, type, sum, count);
    }
}

Config short_slices() {
  Config config;
  config.slice_bytes = config.remote_slice_bytes = 4 << 10;
  return config;
}

class Averages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, Averages, ::testing::Values(2, 3, 8));

TEST_P(Averages, AreExactOnTheBoard) {
  on_ranks(GetParam(), Config{},
           [](Rank me) { expect_all_exact(me.communicator, Sharing::kNobody, {4, 8}); });
}

TEST_P(Averages, AreExactInDirectCalls) {
  on_ranks(GetParam(), Config{}, [](Rank me) {
    for (const Sharing sharing : {Sharing::kNobody, Sharing::kInputs, Sharing::kOutputs,
                                  Sharing::kEverybody, Sharing::kEvenRanks})
      expect_all_exact(me.communicator, sharing, {4096});
  });
}

TEST(LargeAverages, AreExactInDirectCalls) {
  on_ranks(2, Config{}, [](Rank me) {
    for (const Sharing sharing : {Sharing::kNobody, Sharing::kEverybody})
      for (const Type& type : kTypes)
        expect_exact(me.communicator, {Collective::kAllReduce, 0, true, sharing}, type, kSums[0],
                     1 << 20);
  });
}

TEST_P(Averages, AreExactByEveryAlgorithm) {
  on_ranks(GetParam(), short_slices(),
           [](Rank me) { expect_all_exact_by_every_algorithm(me.communicator, me.size); });
}

TEST(AveragesOfHosts, AreExactByEveryAlgorithm) {
  for (const auto& hosts :
       {std::vector{0, 1, 0}, std::vector{0, 0, 1, 1, 2, 2, 3, 3}, std::vector{0, 1, 1, 1, 2}})
    on_ranks(static_cast<int>(hosts.size()), short_slices(), [&](Rank me) {
      const auto group = testing::on_hosts(me, hosts);
      if (hosts.size() != 5) expect_all_exact_by_every_algorithm(*group, Hosts::of(hosts));
      group->run({.collective = Collective::kBarrier});
    });
}

// The sum of the three, 2049, is no float16, its third is one.
TEST(AveragesOfAllInputsAtOnce, AreRoundedOnce) {
  const Type& type = kTypes[2];
  on_ranks(3, Config{}, [&](Rank me) {
    const auto own = static_cast<size_t>(me.rank);
    const double given = std::array{2046.0, 1.0, 2.0}[own];
    const auto expect = [&](Collective collective, size_t count) {
      const size_t chunks = collective == Collective::kReduceScatter ? 3 : 1;
      auto in = filled(type, count * chunks, {given, given, given, given});
      std::vector<std::byte> out(count * 2);
      const Region result = region(out);
      Call call{.collective = collective,
                .type = type.type,
                .op = ReduceOp::kAvg,
                .input = Layout::even(region(in), chunks, 2)};
      if (chunks == 3)
        call.output = Layout::single({&result, 1}, own, 2);
      else if (collective == Collective::kAllReduce || me.rank == 0)
        call.output = Layout::even(result, 1, 2);
      me.communicator.run(call);
      const bool gets = call.output.total_bytes() > 0;
      ASSERT_TRUE(!gets || equal(result, filled(type, count, {683, 683, 683, 683})));
    };
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
      for (const size_t count : {size_t{4}, size_t{4096}}) expect(collective, count);
      for (const std::string algorithm : {"one_shot", "direct"}) {
        if (find_algorithm(collective, algorithm) == nullptr) continue;
        me.communicator.force(
            ForcedAlgorithms::parse(std::string(name(collective)) + ':' + algorithm));
        expect(collective, 4096);
      }
      me.communicator.force({});
    }
  });
}

// Integers are added up and then divided: what leaves the type's range wraps around before.
TEST(AveragesOfIntegers, AreSumsDivided) {
  const auto expect = [](Communicator& group) {
    std::vector<int8_t> eight{100, -7, 3, static_cast<int8_t>(group.rank())};
    std::vector<int64_t> wide{(int64_t{1} << 61) + group.rank(), -7, 3, group.rank()};
    for (int i = 0; i < 2; ++i)
      group.run({.collective = Collective::kAllReduce,
                 .type = i == 0 ? DataType::kInt8 : DataType::kInt64,
                 .op = ReduceOp::kAvg,
                 .input = Layout::even(i == 0 ? region(eight) : region(wide), 1, i == 0 ? 1 : 8),
                 .output = Layout::even(i == 0 ? region(eight) : region(wide), 1, i == 0 ? 1 : 8)});
    // 300 is 44 modulo 256.
    EXPECT_EQ(eight, (std::vector<int8_t>{14, -7, 3, 1}));
    EXPECT_EQ(wide, (std::vector<int64_t>{(int64_t{1} << 61) + 1, -7, 3, 1}));
  };
  on_ranks(3, Config{}, [&](Rank me) {
    expect(me.communicator);
    for (const Algorithm& algorithm : algorithms(Collective::kAllReduce)) {
      if (!algorithm.fits(3)) continue;
      SCOPED_TRACE(std::string(algorithm.name));
      me.communicator.force(ForcedAlgorithms::parse("allreduce:" + std::string(algorithm.name)));
      expect(me.communicator);
    }
  });
}

}  // namespace
}  // namespace hccl_like
