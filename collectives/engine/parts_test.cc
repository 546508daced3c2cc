// Parts of a group, which make parts of its calls: they fail together, and errors name the ranks of
// the group.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using testing::on_ranks;
using testing::Rank;
using testing::region;

constexpr std::chrono::milliseconds kHalfSecond{500}, kMinute{60'000};

// Four ranks on two hosts, the parts within and between them.
struct Family {
  explicit Family(Rank me)
      : whole(testing::on_hosts(me, {0, 0, 1, 1})),
        within(whole->part(std::vector{me.rank / 2 * 2, me.rank / 2 * 2 + 1})),
        between(whole->part(std::vector{me.rank % 2, me.rank % 2 + 2})) {}
  std::shared_ptr<Communicator> whole, within, between;
};

// The error of a call on `group`.
Error error_of(Communicator& group, std::chrono::milliseconds timeout = kMinute) {
  std::vector<float> data(1000, 1.0f);
  Call call{.collective = Collective::kAllReduce,
            .type = DataType::kFloat32,
            .number = 7,
            .input = Layout::even(region(data), 1, sizeof(float)),
            .output = Layout::even(region(data), 1, sizeof(float)),
            .part_of = Collective::kBroadcast};
  call.timeout = timeout;
  try {
    group.run(call);
  } catch (const Exception& exception) {
    return exception.error();
  }
  return {};
}

TEST(Parts, MakeCallsOfTheirOwn) {
  on_ranks(4, Config(), [](Rank me) {
    const Family family(me);
    for (Communicator* const group : {family.within.get(), family.between.get()}) {
      std::vector<float> data(1000, static_cast<float>(me.rank));
      const Layout all = Layout::even(region(data), 1, sizeof(float));
      group->run({.collective = Collective::kAllReduce,
                  .type = DataType::kFloat32,
                  .input = all,
                  .output = all});
      const int sum = group == family.within.get() ? me.rank / 2 * 4 + 1 : me.rank % 2 * 2 + 2;
      EXPECT_EQ(data, std::vector<float>(1000, static_cast<float>(sum)));
    }
    family.whole->run({.collective = Collective::kBarrier});
  });
}

TEST(Parts, FailTogetherWithTheWhole) {
  on_ranks(4, Config(), [](Rank me) {
    const Family family(me);
    if (me.rank == 3) family.within->abort("the cable was pulled");
    for (Communicator* const group :
         {family.whole.get(), family.within.get(), family.between.get()}) {
      const Error error = error_of(*group);
      EXPECT_EQ(error.code, ErrorCode::kAborted);
      EXPECT_NE(error.message.find("aborted on rank 3: the cable was pulled"), std::string::npos)
          << me.rank << ": " << error.message;
    }
  });
}

TEST(Parts, FailAfterTheWholeHasFailed) {
  on_ranks(2, Config(), [](Rank me) {
    const auto whole = testing::on_hosts(me, {0, 1});
    whole->abort("the cable was pulled");
    EXPECT_EQ(error_of(*whole).code, ErrorCode::kAborted);
    const auto part = whole->part(std::vector{me.rank});
    EXPECT_EQ(error_of(*part).code, ErrorCode::kAborted);
  });
}

TEST(Parts, NameRanksOfTheWhole) {
  on_ranks(4, Config(), [](Rank me) {
    const Family family(me);
    Communicator& waits = me.rank == 2   ? *family.within
                          : me.rank == 0 ? *family.between
                                         : *family.whole;
    const Error error = error_of(waits, me.rank == 2 ? kHalfSecond : kMinute);
    const std::string words = "rank 2 of group " + family.whole->name() +
                              ": all_reduce #7 (float32, sum, 4000 bytes, part of broadcast #7) "
                              "reached its timeout";
    EXPECT_NE(error.message.find(words), std::string::npos) << me.rank << ": " << error.message;
    EXPECT_NE(error.message.find("waiting for rank 3"), std::string::npos) << error.message;
  });
}

TEST(Parts, OfNoRanksAreNone) {
  on_ranks(2, Config(), [](Rank me) {
    const auto whole = testing::on_hosts(me, {0, 1});
    EXPECT_EQ(whole->part({}), nullptr);
  });
}

}  // namespace
}  // namespace hccl_like
