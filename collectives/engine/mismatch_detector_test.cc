// One of several ranks makes another call than the rest, for every pair of calls: all ranks are
// told what both sides call.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using testing::on_hosts;
using testing::on_ranks;
using testing::Rank;
using testing::region;

constexpr size_t kElement = sizeof(float);

struct Kind {
  Collective collective;
  std::string words;  // of the error of whoever makes another call
  int root = 0;       // -1: the last rank
  ReduceOp op = ReduceOp::kSum;
  size_t count = 12;
};

const std::vector<Kind> kKinds{
    {Collective::kAllReduce, "all_reduce of float32 (sum)"},
    {.collective = Collective::kAllReduce,
     .words = "all_reduce of float32 (max)",
     .op = ReduceOp::kMax},
    {.collective = Collective::kAllReduce, .words = "all_reduce of float32 (sum)", .count = 13},
    {Collective::kBroadcast, "broadcast of float32 with root 0"},
    {Collective::kBroadcast, "broadcast of float32 with root ", -1},
    {Collective::kReduce, "reduce of float32 (sum) with root 0"},
    {Collective::kReduce, "reduce of float32 (sum) with root ", -1},
    {Collective::kGather, "gather of float32 with root 0"},
    {Collective::kScatter, "scatter of float32 with root ", -1},
    {Collective::kAllGather, "all_gather of float32"},
    {Collective::kReduceScatter, "reduce_scatter of float32 (sum)"},
    {Collective::kAllToAll, "all_to_all of float32"},
    {Collective::kBarrier, "barrier"},
};

void make(Communicator& group, const Kind& kind) {
  const auto ranks = static_cast<size_t>(group.size());
  const int root = kind.root < 0 ? group.size() - 1 : kind.root;
  std::vector<float> in(kind.count * ranks, 1.0f), out(kind.count * ranks, 0.0f);
  const Region one{reinterpret_cast<std::byte*>(in.data()), kind.count * kElement};
  const Region other{reinterpret_cast<std::byte*>(out.data()), kind.count * kElement};
  const Region own_in[]{one}, own_out[]{other};
  Call call{.collective = kind.collective, .type = DataType::kFloat32, .op = kind.op, .root = root};
  const auto me = static_cast<size_t>(group.rank());
  const bool is_root = group.rank() == root;
  switch (kind.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      call.input = Layout::even(one, 1, kElement);
      call.output = Layout::even(other, 1, kElement);
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      call.input = Layout::single(own_in, me, kElement);
      if (is_root || kind.collective == Collective::kAllGather)
        call.output = Layout::even(region(out), ranks, kElement);
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (is_root || kind.collective == Collective::kReduceScatter)
        call.input = Layout::even(region(in), ranks, kElement);
      call.output = Layout::single(own_out, me, kElement);
      break;
    case Collective::kAllToAll:
      call.input = Layout::even(region(in), ranks, kElement);
      call.output = Layout::even(region(out), ranks, kElement);
      break;
    default:
      break;
  }
  group.run(std::move(call));
}

// The error message that this rank receives.
std::string error_of(Communicator& group, const Kind& kind) {
  try {
    // The first to be told may tell a rank that is still in this one.
    group.run({.collective = Collective::kBarrier});
    make(group, kind);
    // A rank that has no part left in the call hears of it in its next one.
    group.run({.collective = Collective::kBarrier});
  } catch (const Exception& error) {
    return error.error().message;
  }
  return "no error";
}

// Of `parent`, which stays well. `stride`: every how many-th pair.
void disagree(Communicator& parent, size_t stride) {
  std::vector<int> all(static_cast<size_t>(parent.size()));
  std::iota(all.begin(), all.end(), 0);
  size_t number = 0;
  for (const Kind& usual : kKinds)
    for (const Kind& other : kKinds)
      for (const int odd : {0, parent.size() - 1}) {
        if (&usual == &other || ++number % stride != 0) continue;
        const auto group = parent.split(all, "pair");
        const std::string error = error_of(*group, parent.rank() == odd ? other : usual);
        for (const std::string& words :
             {std::string(" disagree about call #2"), "rank " + std::to_string(odd) + " ",
              usual.words, other.words})
          EXPECT_NE(error.find(words), std::string::npos)
              << "rank " << parent.rank() << " of " << parent.size() << " misses '" << words
              << "' where rank " << odd << " makes " << other.words << ", the others "
              << usual.words << ": " << error;
        parent.run({.collective = Collective::kBarrier});
      }
}

Config by_messages() {
  Config config;
  config.board = false;
  return config;
}

constexpr std::chrono::seconds kLong{60};

TEST(DifferentCalls, AreToldToAllRanksOfOneHost) {
  on_ranks(3, Config(), [](Rank me) { disagree(me.communicator, 3); }, kLong);
}

TEST(DifferentCalls, AreToldToAllRanksByMessages) {
  on_ranks(3, by_messages(), [](Rank me) { disagree(me.communicator, 3); }, kLong);
}

TEST(DifferentCalls, AreToldToBothOfTwoRanks) {
  on_ranks(2, by_messages(), [](Rank me) { disagree(me.communicator, 3); }, kLong);
}

TEST(DifferentCalls, AreToldToAllRanksOfTwoHosts) {
  on_ranks(4, Config(), [](Rank me) { disagree(*on_hosts(me, {0, 0, 1, 1}), 5); }, kLong);
}

}  // namespace
}  // namespace hccl_like
