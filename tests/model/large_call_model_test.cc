// Large calls of one host (collectives/same_host) in every order in which their ranks can go on,
// with every value of a counter that a rank may still see: each result is right, and nobody sleeps
// on while there is work for him.
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/same_host/same_host_stage.h"
#include "collectives/same_host/staging_buffer.h"
#include "core/machine/thread_pool.h"
#include "core/memory/memory_file.h"
#include "tests/model/modelled_board.h"
#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

constexpr uint32_t kStagingBuffers = 2;  // that an execution may take

struct Setting {
  Collective collective;
  size_t bytes;
  bool begun = false;  // by the caller's thread, before an engine takes it over
  bool lacks = false;  // rank 1 has no staging buffer left
};

struct Job : BoardRanks {
  Job(ModelledHost& host, const std::vector<Shown>& shown) : BoardRanks(host, shown) {
    for (const Shown& one : shown) make_staging_buffers(*one.commons);
  }
  // As if they had never been taken.
  static void make_staging_buffers(Commons& commons) {
    Shelf& staging_buffers = commons.staging_buffers();
    std::byte* const begin = staging_buffers.data(0);
    std::destroy_at(&staging_buffers);
    new (&staging_buffers)
        Shelf(commons.fd(), begin, Commons::kStagingBegin, Commons::kStagingBytes,
              /*reserved=*/offsetof(StagingBuffer, payload), kStagingBuffers);
    for (uint32_t i = 0; i < kStagingBuffers; ++i) {
      std::memset(staging_buffers.data(i), 0, offsetof(StagingBuffer, payload));
      const auto& staging_buffer = *reinterpret_cast<const StagingBuffer*>(staging_buffers.data(i));
      for (const auto counter :
           {&StagingBuffer::put, &StagingBuffer::worked, &StagingBuffer::finished,
            &StagingBuffer::accepted, &StagingBuffer::writing})
        (staging_buffer.*counter).load();
    }
  }

  void call(size_t self, const Setting& setting) {
    BoardRank& rank = ranks[self];
    std::vector<int32_t>& memory = memory_of(self);
    memory.assign(setting.bytes / sizeof(int32_t), static_cast<int32_t>(self + 1));
    const Region region{reinterpret_cast<std::byte*>(memory.data()), setting.bytes};
    const bool pairs = setting.collective == Collective::kAllToAll;
    // All that rank 0 has goes to rank 1, which gives nothing.
    const Layout whole = Layout::even(region, 1, 4), nothing = Layout::list({{}, {}}, 4);
    const Layout other = self == 0 ? Layout::list({{}, region}, 4) : Layout::list({region, {}}, 4);
    const Call asked{.collective = setting.collective,
                     .type = DataType::kInt32,
                     .input = !pairs      ? whole
                              : self == 0 ? other
                                          : nothing,
                     .output = !pairs      ? whole
                               : self == 1 ? other
                                           : nothing};
    const Plan plan{.reduction = reduction(DataType::kInt32, ReduceOp::kSum),
                    .fingerprint = 1,
                    .chunks = pairs ? Chunks::kPairs : Chunks::kEqual};
    const SameHostResources resources{.thread_pool = &nobody()};
    const BoardCall call{.board = rank.board.get(),
                         .call = &asked,
                         .plan = &plan,
                         .input = &asked.input,
                         .output = &asked.output,
                         .resources = &resources,
                         .bytes = setting.bytes};
    SameHostStage& stage = stages[self];
    auto begun = setting.begun ? std::make_unique<LargeCall>() : nullptr;
    const bool shown = begun && begun->begin(call);
    if (shown) {
      begun->show();
      Backoff none{Config{}};
      others_are_there(call, none, /*may_wait=*/false);
    } else {
      begun.reset();
    }
    stage.begin(call, CallPath::kLarge, shown, std::move(begun));
    while (stage.holds() && !stage.finished())
      if (!stage.advance()) rank.sleep([&] { return stage.could_advance(); });
    const bool finished = stage.finished();
    stage.end();
    check(finished != setting.lacks, "not the way that the ranks have agreed about");
    if (setting.lacks) return;
    const bool reduced = setting.collective == Collective::kAllReduce ||
                         (setting.collective == Collective::kReduce && self == 0);
    const int32_t kept = setting.collective == Collective::kReduce ? 2 : 1;
    const int32_t expected = reduced ? 3 : kept;
    check(std::ranges::count(memory, expected) == std::ssize(memory), "a wrong result");
  }

  static ThreadPool& nobody() {
    static ThreadPool thread_pool(/*most=*/1);
    return thread_pool;
  }

  // Kept: to allocate it takes longer than the call.
  static std::vector<int32_t>& memory_of(size_t rank) {
    static std::array<std::vector<int32_t>, 2> memories;
    return memories[rank];
  }

  std::array<SameHostStage, 2> stages;
};

Verdict run(Setting setting, Flaw flaw = {}, bool all_look_again = true) {
  return explore_job<Job>(
      2,
      [=](Explorer& explorer, const std::shared_ptr<Job>& job) {
        job->ranks[1].looks_again = all_look_again;
        if (setting.lacks) {
          while (job->ranks[1].board->staging_buffers().take()) {
          }
          explorer.finally([=] {
            for (uint32_t i = 0; i < kStagingBuffers; ++i)
              check(job->ranks[0].board->staging_buffers().take().has_value(),
                    "a staging buffer was not given back");
          });
        }
        for (size_t i = 0; i < 2; ++i)
          explorer.thread("rank " + std::to_string(i), [=] { job->call(i, setting); });
      },
      flaw);
}

constexpr Setting kBroadcast{Collective::kBroadcast, 4096};

TEST(DirectModel, ABroadcastArrivesAndNobodySleepsTooLong) {
  EXPECT_TRUE(holds(run(kBroadcast), 500));
}

TEST(DirectModel, ABroadcastInTwoSlicesArrives) {
  EXPECT_TRUE(holds(run({Collective::kBroadcast, StagingBuffer::kSlotBytes / 2 + 4096}), 7'000));
}

TEST(DirectModel, AllRanksGetTheSumAndNobodySleepsTooLong) {
  EXPECT_TRUE(holds(run({Collective::kAllReduce, 4096}), 1'500));
}

// The other rank sums a share, which the root fetches.
TEST(DirectModel, TheRootGetsBothSharesOfTheSumAndNobodySleepsTooLong) {
  EXPECT_TRUE(holds(run({Collective::kReduce, 4096}), 9'000, kMany));
}

TEST(DirectModel, APairWhoseSizesOnlyItsRanksKnowExchangesInTwoSlices) {
  EXPECT_TRUE(holds(run({Collective::kAllToAll, (128 << 10) + 4096}), 7'000));
}

TEST(DirectModel, ACallThatItsCallerBeganAndAnEngineTookOverArrives) {
  EXPECT_TRUE(holds(run({Collective::kBroadcast, 4096, /*begun=*/true}), 500));
}

TEST(DirectModel, WhereOneRankHasNoLaneBothLeaveTheCallToMessages) {
  for (const bool begun : {false, true})
    for (const Collective collective : {Collective::kBroadcast, Collective::kAllReduce})
      EXPECT_TRUE(holds(run({collective, 4096, begun, /*lacks=*/true}), 50));
}

TEST(DirectModel, WithoutTheFenceOfEitherSideAWakeUpIsLost) {
  EXPECT_TRUE(fails_with(run(kBroadcast, {.thread = "rank 0"}), kLost));
  EXPECT_TRUE(fails_with(run(kBroadcast, {.thread = "rank 1"}), kLost));
}

TEST(DirectModel, WhoeverDoesNotLookAtTheLanesAgainMayNeverWake) {
  EXPECT_TRUE(fails_with(run(kBroadcast, {}, /*all_look_again=*/false), kLost));
}

}  // namespace
}  // namespace hccl_like::model
