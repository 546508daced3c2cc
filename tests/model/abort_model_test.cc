// How a failure spreads among ranks of one host (transport/same_host/commons.h, guarded_text.h,
// life.h, local_peer.h, link.h), in every execution: a rank gives a group up, several do, it dies
// while it does, it leaves. Every survivor ends, and says why.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/machine/fence.h"
#include "tests/model/modelled_local_peers.h"
#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

constexpr uint64_t kGroup = 7;
constexpr const char* kCause = "because";
constexpr const char* kDied = "it died";
constexpr const char* kLeft = "it left";

struct Job {
  Job(ModelledLocalPeers& all, size_t ranks) : people(all), links(ranks), ends(ranks) {
    people.begin_execution();
    for (size_t self = 0; self < ranks; ++self)
      for (size_t peer = 0; peer < ranks; ++peer) links[self].push_back(people.meet(self, peer));
  }

  // As Engine::tell does.
  void tell(size_t self, const std::string& why) {
    for (const auto& link : links[self])
      if (link && link->failure() == nullptr) link->send_abort(kGroup, why);
  }
  void give_up(size_t self, const std::string& why) {
    ends[self] = why;
    tell(self, why);
  }
  // As ~Mesh does.
  void leave(size_t self) {
    people.commons(self).leave();
    full_fence();
    for (const auto& link : links[self])
      if (link) link->nudge();
  }

  // As an engine with an operation under way waits (collectives/engine/engine.cc: drive, step,
  // sleep; engine_failures.cc: look_at_links), its timeout at an end, until the operation has
  // failed.
  void wait(size_t self) {
    Commons& own = people.commons(self);
    while (!has_failed(self)) {
      own.set_asleep(true);
      bool quiet = true;
      for (const auto& link : links[self])
        if (link && quiet && looks_again) quiet = link->prepare_sleep();
      if (quiet) people.poller(self).sleep(Deadline::never());
      own.set_asleep(false);
      for (const auto& link : links[self])
        if (link) link->look_for_end();
    }
  }
  // A rank that was told of the abort does not pass it on: the other ranks see the same memory. A
  // rank that saw a peer end tells all ranks.
  bool has_failed(size_t self) {
    Explorer::active()->landmark(0);
    for (const auto& link : links[self]) {
      if (!link) continue;
      link->progress();
      if (const auto notice = link->take_abort()) {
        check(notice->communicator == kGroup, "another group was given up");
        ends[self] = notice->reason;
        return true;
      }
      if (link->failure() != nullptr) {
        give_up(self, link->peer_said_goodbye() ? kLeft : kDied);
        return true;
      }
    }
    return false;
  }

  ModelledLocalPeers& people;
  std::vector<std::vector<std::unique_ptr<Link>>> links;
  std::vector<std::string> ends;  // why each rank's operation failed
  bool looks_again = true;
};

using Scenario = std::function<void(Explorer&, const std::shared_ptr<Job>&)>;

Verdict explore(size_t ranks, const Scenario& scenario, Flaw flaw = {}) {
  ModelledLocalPeers people(ranks);
  return Explorer::explore(
      [&](Explorer& explorer) { scenario(explorer, std::make_shared<Job>(people, ranks)); }, flaw);
}

void waits(Explorer& explorer, const std::shared_ptr<Job>& job, size_t self) {
  explorer.thread("rank " + std::to_string(self), [=] { job->wait(self); });
}

// Rank 0 gives up, the others wait.
Verdict one_gives_up(size_t ranks, Flaw flaw = {}, bool all_look_again = true) {
  return explore(
      ranks,
      [=](Explorer& explorer, const std::shared_ptr<Job>& job) {
        job->looks_again = all_look_again;
        explorer.thread("rank 0", [=] { job->give_up(0, kCause); });
        for (size_t i = 1; i < ranks; ++i) waits(explorer, job, i);
        explorer.finally([=] {
          for (const std::string& why : job->ends)
            check(why == kCause, "an error of another cause: " + why);
        });
      },
      flaw);
}

TEST(AbortModel, EverySurvivorHearsTheCause) {
  for (const size_t ranks : {2, 3}) {
    EXPECT_TRUE(holds(one_gives_up(ranks), ranks == 2 ? 100 : 15'000, ranks == 2 ? 1e4 : kMany))
        << ranks << " ranks";
  }
}

TEST(AbortModel, WithoutTheFenceOfEitherSideAWakeUpIsLost) {
  EXPECT_TRUE(fails_with(one_gives_up(2, {.thread = "rank 0"}), kLost)) << "who gives up";
  EXPECT_TRUE(fails_with(one_gives_up(2, {.thread = "rank 1"}), kLost)) << "who sleeps";
}

TEST(AbortModel, WhoeverDoesNotLookAgainBeforeItSleepsMayNeverHear) {
  EXPECT_TRUE(fails_with(one_gives_up(2, {}, /*all_look_again=*/false), kLost));
}

TEST(AbortModel, WhatIsToldMustBeReleasedAndAcquired) {
  EXPECT_TRUE(fails_with(one_gives_up(2, {.relaxed_inside = "Commons::give_up"}), "a"));
  EXPECT_TRUE(fails_with(one_gives_up(2, {.relaxed_inside = "PeerCommons::given_up"}), "a"));
}

// Two of three at once, each for a cause of its own.
TEST(AbortModel, WhenTwoGiveUpTheThirdHearsOneOfThem) {
  EXPECT_TRUE(holds(explore(3,
                            [](Explorer& explorer, const std::shared_ptr<Job>& job) {
                              for (const size_t i : {0, 1})
                                explorer.thread("rank " + std::to_string(i), [=] {
                                  job->give_up(i, "cause " + std::to_string(i));
                                });
                              waits(explorer, job, 2);
                              explorer.finally([=] {
                                check(job->ends[0] == "cause 0" && job->ends[1] == "cause 1",
                                      "its own cause is not the first");
                                check(job->ends[2] == "cause 0" || job->ends[2] == "cause 1",
                                      "neither: " + job->ends[2]);
                              });
                            }),
                    5'000));
}

// Rank 0 may die before any step of its giving up.
Verdict one_dies(size_t ranks, std::set<std::string>& heard) {
  return explore(ranks, [=, &heard](Explorer& explorer, const std::shared_ptr<Job>& job) {
    explorer.mortal("rank 0", [=] { job->give_up(0, kCause); }, [=] { job->people.die(0); });
    for (size_t i = 1; i < ranks; ++i) waits(explorer, job, i);
    explorer.finally([=, &heard] {
      for (size_t i = 1; i < ranks; ++i) {
        check(job->ends[i] == kCause || job->ends[i] == kDied, "another cause: " + job->ends[i]);
        heard.insert(job->ends[i]);
      }
    });
  });
}

TEST(AbortModel, OfARankThatDiesAtAnyStepTheSurvivorHears) {
  std::set<std::string> heard;
  EXPECT_TRUE(holds(one_dies(2, heard), 400));
  EXPECT_EQ(heard, (std::set<std::string>{kCause, kDied})) << "both happen";
}

// A rank that gives up and leaves: nobody may take it for one that only left.
Verdict gives_up_and_leaves(Flaw flaw = {}) {
  return explore(
      2,
      [](Explorer& explorer, const std::shared_ptr<Job>& job) {
        explorer.thread("rank 0", [=] {
          job->give_up(0, kCause);
          job->leave(0);
        });
        waits(explorer, job, 1);
        explorer.startle(1);  // a look around that comes between
        explorer.finally(
            [=] { check(job->ends[1] == kCause, "the cause was not heard: " + job->ends[1]); });
      },
      flaw);
}

TEST(AbortModel, WhoeverSeesThatARankHasLeftHearsWhatItSaidBefore) {
  EXPECT_TRUE(holds(gives_up_and_leaves(), 500));
  EXPECT_TRUE(fails_with(gives_up_and_leaves({.relaxed_inside = "PeerCommons::leaving"}),
                         "the cause was not heard"));
}

// So many groups are given up that the place of the first reason is used again, while somebody
// reads it.
Verdict written_over(Flaw flaw = {}) {
  constexpr uint32_t kReasons = CommonsNotes::kReasons;
  return explore(
      2,
      [](Explorer& explorer, const std::shared_ptr<Job>& job) {
        for (uint32_t i = 0; i < kReasons; ++i)
          job->people.commons(0).give_up(100 + i, "first 89abcdef");
        explorer.thread("rank 0",
                        [=] { job->people.commons(0).give_up(kGroup, "second 9abcdef"); });
        explorer.thread("rank 1", [=] {
          const auto notice = job->links[1][0]->take_abort();
          check(notice && notice->communicator == 100, "another group than the first");
          check(notice->reason == "first 89abcdef" || notice->reason == "it failed there",
                "a reason of two: " + notice->reason);
        });
      },
      flaw);
}

TEST(AbortModel, AReasonThatIsWrittenOverIsReadWholeOrNotAtAll) {
  EXPECT_TRUE(holds(written_over(), 100));
  EXPECT_TRUE(fails_with(written_over({.thread = "rank 0"}), "a reason of two"))
      << "the writer's fence";
  EXPECT_TRUE(fails_with(written_over({.thread = "rank 1"}), "a reason of two")) << "the reader's";
}

}  // namespace
}  // namespace hccl_like::model
