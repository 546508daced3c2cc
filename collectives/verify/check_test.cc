#include "collectives/verify/check.h"

#include <gtest/gtest.h>

#include <functional>

#include "collectives/verify/prove.h"

namespace hccl_like {
namespace {

// A job of one rank's making; the other ranks are not looked at by check_rank().
Job job_of(Collective collective, Schedule schedule, int size = 3, int root = 0) {
  Job job{.collective = collective, .root = root};
  job.ranks.assign(static_cast<size_t>(size), Schedule(schedule.chunks()));
  job.ranks[0] = std::move(schedule);
  return job;
}

template <class... Steps>
std::string fault_of_round(Collective collective, const Steps&... steps) {
  Schedule s(/*chunks=*/4);
  s.add_scratch(in(0)), s.add_scratch(in(1));
  s.round(steps...);
  return check_rank(job_of(collective, std::move(s)), 0);
}

constexpr Collective kAny = Collective::kAllReduce;

TEST(CheckRank, AcceptsARoundOfTheRing) {
  EXPECT_EQ(fault_of_round(kAny, send(1, out(2)), recv_reduce(2, in(1), out(1))), "");
}

TEST(CheckRank, FindsARoundThatWritesWhatItSends) {
  EXPECT_EQ(fault_of_round(kAny, send(1, out(0)), recv(2, out(0))),
            "rank 0, round 0: recv out[0]<-2 writes what is read by: send out[0]->1");
  EXPECT_EQ(
      fault_of_round(kAny, send(1, out(0), 4), recv_reduce(2, in(3), out(3))),
      "rank 0, round 0: recv_reduce in[3]+<-2 to out[3] writes what is read by: send out[0..3]->1");
}

TEST(CheckRank, FindsHazardsThatOnlyExistInPlace) {
  EXPECT_EQ(fault_of_round(kAny, send(1, in(0)), recv(2, out(0))),
            "rank 0, round 0: recv out[0]<-2 writes what is read by: send in[0]->1 (input and "
            "output are the same "
            "memory)");
  EXPECT_EQ(fault_of_round(Collective::kAllToAll, send(1, in(0)), recv(2, out(0))), "");
  EXPECT_NE(fault_of_round(kAny, copy(in(0), out(1)), copy(in(1), out(2))), "");
}

TEST(CheckRank, FindsMemoryThatIsWrittenTwice) {
  EXPECT_EQ(fault_of_round(kAny, recv(1, out(1), 2), recv(2, out(2))),
            "rank 0, round 0: recv out[1..2]<-1 writes what is also written by: recv out[2]<-2");
}

TEST(CheckRank, FindsCopiesThatOverlapThemselves) {
  EXPECT_NE(fault_of_round(kAny, copy(out(0), out(1), 2)), "");
  EXPECT_NE(fault_of_round(kAny, recv_reduce(1, out(0), out(1), 2)), "");
  EXPECT_EQ(fault_of_round(kAny, recv_reduce(1, out(1), out(1), 2)), "");
}

TEST(CheckRank, LetsACopyInPlaceStandBesideAnything) {
  EXPECT_EQ(fault_of_round(kAny, send(1, in(0)), copy(in(0), out(0))), "");
}

TEST(CheckRank, FindsAReductionWhoseSourceArrivesInTheSameRound) {
  Schedule s(1);
  const Slot got = s.add_scratch(in(0));
  s.round(recv(1, got));
  s.add_reduce(out(0), std::vector{in(0), got});
  EXPECT_EQ(check_rank(job_of(kAny, std::move(s)), 0),
            "rank 0, round 0: recv scratch[0]<-1 writes what is read by: reduce in[0]+scratch[0] "
            "to out[0]");
}

TEST(CheckRank, FindsWhatDoesNotExist) {
  EXPECT_EQ(fault_of_round(kAny, send(3, in(0))),
            "rank 0, round 0: send in[0]->3 names a rank that does not exist");
  EXPECT_EQ(fault_of_round(kAny, recv(-1, out(0))),
            "rank 0, round 0: recv out[0]<--1 names a rank that does not exist");
  EXPECT_EQ(fault_of_round(kAny, send(0, in(0))),
            "rank 0, round 0: send in[0]->0 names its own rank");
  EXPECT_EQ(fault_of_round(kAny, send(1, in(4))),
            "rank 0, round 0: send in[4]->1 reads a chunk that does not exist");
  EXPECT_EQ(fault_of_round(kAny, recv(1, out(2), 3)),
            "rank 0, round 0: recv out[2..4]<-1 writes a chunk that does not exist");
  EXPECT_EQ(fault_of_round(kAny, copy(scratch(2), out(2))),
            "rank 0, round 0: copy scratch[2] to out[2] reads a chunk that does not exist");
}

TEST(CheckRank, FindsWhatTheCollectiveDoesNotAllow) {
  EXPECT_EQ(fault_of_round(kAny, recv(1, in(0))),
            "rank 0, round 0: recv in[0]<-1 writes the input");
  EXPECT_EQ(fault_of_round(Collective::kAllGather, send(1, in(1))),
            "rank 0, round 0: send in[1]->1 reads input that this rank does not have");
  EXPECT_EQ(fault_of_round(Collective::kReduceScatter, recv(1, out(1))),
            "rank 0, round 0: recv out[1]<-1 uses output that this rank does not have");
  Schedule s(1);
  s.round(recv(1, out(0)));
  EXPECT_EQ(check_rank(job_of(Collective::kReduce, s, 3, /*root=*/1), 0),
            "rank 0, round 0: recv out[0]<-1 uses output that this rank does not have");
  EXPECT_EQ(check_rank(job_of(Collective::kReduce, s, 3, /*root=*/0), 0), "");
}

Job two_ranks(Schedule a, Schedule b, Collective collective = kAny) {
  return {.collective = collective, .ranks = {std::move(a), std::move(b)}};
}

TEST(Check, FindsAMessageInAnotherRound) {
  Schedule a(1), b(1);
  a.round(send(1, in(0)));
  b.round();
  b.round(recv(0, out(0)));
  EXPECT_EQ(
      check(two_ranks(a, b)),
      "rank 0, round 0: send in[0]->1, but rank 1 has no step in this round that receives it");
}

TEST(Check, FindsAReceiveThatNobodySends) {
  Schedule a(1), b(1);
  b.round(recv(0, out(0)));
  EXPECT_EQ(check(two_ranks(a, b)),
            "rank 1, round 0: recv out[0]<-0, but rank 0 has no step in this round that sends it");
}

TEST(Check, FindsMessagesOfAnotherSize) {
  Schedule a(2), b(2);
  a.round(send(1, in(0), 2));
  b.round(recv(0, out(0)));
  EXPECT_EQ(check(two_ranks(a, b)),
            "rank 0: send in[0..1]->1 meets recv out[0]<-0, which has another size");
  Schedule c(2);
  c.round(recv(0, out(0), 1), recv(0, out(1), 1));
  Schedule d(2);
  d.round(send(1, in(1), 1), send(1, in(0), 1));
  EXPECT_EQ(check(two_ranks(d, c)),
            "rank 0: send in[1]->1 meets recv out[0]<-0, which has another size");
}

TEST(Check, FindsLocalStepsThatMixSizes) {
  Schedule a(2);
  a.round(copy(in(0), out(1)));
  EXPECT_EQ(check(two_ranks(a, Schedule(2))),
            "rank 0: copy in[0] to out[1] mixes chunks of different sizes");
}

TEST(Check, KnowsWhoseChunksAnAllToAllExchanges) {
  Schedule a(2), b(2);
  a.round(send(1, in(1)), recv(1, out(1)));
  b.round(send(0, in(0)), recv(0, out(0)));
  EXPECT_EQ(check(two_ranks(a, b, Collective::kAllToAll)), "");
  Schedule c(2);
  c.round(send(0, in(1)), recv(0, out(0)));
  EXPECT_EQ(check(two_ranks(a, c, Collective::kAllToAll)),
            "rank 1: send in[1]->0 meets recv out[1]<-1, which has another size");
}

TEST(Check, FindsRanksThatCutThePayloadDifferently) {
  EXPECT_EQ(check(two_ranks(Schedule(1), Schedule(2))),
            "rank 1 cuts the payload into other chunks than rank 0");
}

// Faults planted in the real algorithms, one at a time: whatever is done to a step, check or proof
// must notice.
class Mutations {
 public:
  // Returns the step to put in place of `step`, or one with count 0 to leave it out.
  using Mutate = std::function<Step(const Step&, const Job&)>;

  explicit Mutations(Mutate mutate) : mutate_(std::move(mutate)) {}

  // Plants the fault in every step of every rank of every algorithm in turn.
  void run() {
    for (int i = 0; i < kCollectives; ++i) {
      for (const Algorithm& algorithm : algorithms(static_cast<Collective>(i))) {
        if (algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv)
          continue;
        for (const int size : {3, 4, 7}) {
          if (algorithm.fits(size))
            run(make_job(algorithm, size, 1), algorithm);
          else if (algorithm.fits(Hosts::even(2, size / 2)))
            run(make_job(algorithm, Hosts::even(2, size / 2), 1), algorithm);
        }
      }
    }
    EXPECT_GT(planted_, 200);
  }

 private:
  void run(const Job& job, const Algorithm& algorithm) {
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      for (size_t at = 0; at < job.ranks[rank].steps().size(); ++at) {
        const Step& step = job.ranks[rank].steps()[at];
        const Step mutant = mutate_(step, job);
        if (mutant == step) continue;
        Job faulty = job;
        faulty.ranks[rank] = with(job.ranks[rank], at, mutant);
        ++planted_;
        EXPECT_FALSE(notice(faulty).empty())
            << name(algorithm.collective) << ':' << algorithm.name << " of " << job.size()
            << ", rank " << rank << ": " << job.ranks[rank].to_string(step) << " became "
            << faulty.ranks[rank].to_string(mutant);
      }
    }
  }

  static std::string notice(const Job& job) {
    if (std::string fault = check(job); !fault.empty()) return fault;
    return prove(job, Memory::kSeparate);
  }

  static Schedule with(const Schedule& schedule, size_t at, const Step& mutant) {
    Schedule result(schedule.chunks());
    for (const Slot& like : schedule.scratch_like()) result.add_scratch(like);
    size_t number = 0;
    for (size_t round = 0; round < schedule.rounds(); ++round) {
      result.begin_round();
      for (const Step& step : schedule.steps(round)) {
        const Step& taken = number++ == at ? mutant : step;
        if (taken.kind == Step::Kind::kReduce && taken.count > 0) {
          result.add_reduce(taken.dst, schedule.sources(step).first(taken.sources));
        } else {
          result.add(taken);
        }
      }
    }
    return result;
  }

  Mutate mutate_;
  int planted_ = 0;
};

TEST(Mutation, LeavingOutAStep) {
  Mutations([](Step step, const Job&) {
    step.count = 0;
    return step;
  }).run();
}

TEST(Mutation, TalkingToAnotherPeer) {
  Mutations([](Step step, const Job& job) {
    if (step.peer >= 0) step.peer = (step.peer + 1) % job.size();
    return step;
  }).run();
}

TEST(Mutation, ForgettingToAdd) {
  Mutations([](Step step, const Job&) {
    if (step.kind == Step::Kind::kRecvReduce) step.kind = Step::Kind::kRecv;
    if (step.kind == Step::Kind::kReduce) --step.sources;
    return step;
  }).run();
}

TEST(Mutation, SendingAnotherChunk) {
  Mutations([](Step step, const Job& job) {
    const bool single = job.ranks[0].chunks() == 1;
    if (step.kind == Step::Kind::kSend && !single)
      step.a.index = (step.a.index + 1) % job.ranks[0].chunks();
    return step;
  }).run();
}

TEST(Mutation, ReceivingIntoAnotherChunk) {
  Mutations([](Step step, const Job& job) {
    const bool single = job.ranks[0].chunks() == 1;
    if (step.kind == Step::Kind::kRecv && !single) {
      step.dst.index = (step.dst.index + 1) % job.ranks[0].chunks();
    }
    return step;
  }).run();
}

TEST(Mutation, SwappingTwoRounds) {
  int planted = 0;
  for (int i = 0; i < kCollectives; ++i) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(i))) {
      if (algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv)
        continue;
      const Job job = make_job(algorithm, algorithm.fits(4) ? Hosts(4) : Hosts::even(2, 2), 1);
      for (size_t rank = 0; rank < 4; ++rank) {
        const Schedule& original = job.ranks[rank];
        for (size_t swapped = 0; swapped + 1 < original.rounds(); ++swapped) {
          Schedule mutant(original.chunks());
          for (const Slot& like : original.scratch_like()) mutant.add_scratch(like);
          for (size_t round = 0; round < original.rounds(); ++round) {
            mutant.begin_round();
            const size_t from = round == swapped       ? round + 1
                                : round == swapped + 1 ? round - 1
                                                       : round;
            for (const Step& step : original.steps(from)) {
              if (step.kind == Step::Kind::kReduce) {
                mutant.add_reduce(step.dst, original.sources(step));
              } else {
                mutant.add(step);
              }
            }
          }
          if (mutant == original) continue;
          Job faulty = job;
          faulty.ranks[rank] = mutant;
          ++planted;
          std::string fault = check(faulty);
          if (fault.empty()) fault = prove(faulty, Memory::kSeparate);
          EXPECT_FALSE(fault.empty())
              << name(algorithm.collective) << ':' << algorithm.name << ", rank " << rank
              << ", rounds " << swapped << " and " << swapped + 1;
        }
      }
    }
  }
  EXPECT_GT(planted, 100);
}

}  // namespace
}  // namespace hccl_like
