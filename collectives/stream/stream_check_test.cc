#include "collectives/stream/stream_check.h"

#include <gtest/gtest.h>

#include "collectives/registry/algorithms.h"
#include "collectives/testing/algorithm_name.h"
#include "collectives/verify/check.h"

namespace hccl_like {
namespace {

std::vector<const Algorithm*> algorithms_of_one_host() {
  std::vector<const Algorithm*> result;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (is_point_to_point(collective)) continue;
    for (const Algorithm& algorithm : algorithms(collective))
      if (algorithm.fits(4)) result.push_back(&algorithm);
  }
  return result;
}

std::string fault_of(const Job& job, Memory memory, uint64_t seed) {
  const auto programs = compile_streams(job, memory == Memory::kInPlace);
  std::string fault = check_streams(job, programs, memory);
  if (fault.empty() && job.collective != Collective::kBarrier)
    fault = run_streams(job, programs, memory, seed);
  for (int dies = 0; fault.empty() && dies < job.size(); ++dies)
    fault = run_streams(job, programs, memory, seed + static_cast<uint64_t>(dies), dies);
  return fault;
}

class EveryAlgorithm : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsAProgramOfStreams) {
  const Algorithm& algorithm = *GetParam();
  for (int size = 1; size <= 17; ++size) {
    if (!algorithm.fits(size)) continue;
    std::vector<int> roots{0};
    if (has_root(algorithm.collective)) roots = {0, size / 2, size - 1};
    for (const int root : roots) {
      const Job job = make_job(algorithm, size, root);
      ASSERT_EQ(check(job), "");
      for (const Memory memory : {Memory::kSeparate, Memory::kInPlace}) {
        if (memory == Memory::kInPlace && !may_run_in_place(job.collective)) continue;
        EXPECT_EQ(fault_of(job, memory, static_cast<uint64_t>(size)), "")
            << size << " ranks, root " << root << (memory == Memory::kInPlace ? ", in place" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, EveryAlgorithm, ::testing::ValuesIn(algorithms_of_one_host()),
                         testing::algorithm_name);

Job all_reduce(std::string_view algorithm, int size) {
  return make_job(*find_algorithm(Collective::kAllReduce, algorithm), size);
}

TEST(StreamProgram, TwoRanksReadEachOthersInputs) {
  const auto programs = compile_streams(all_reduce("one_shot", 2), /*in_place=*/false);
  EXPECT_EQ(programs[0].to_string(),
            "signal 1\n"
            "wait 1 >= 1\n"
            "out[0] = 0:in[0] + 1:in[0]\n"
            "signal 3\n"
            "wait 1 >= 3\n");
}

TEST(StreamProgram, OfFourRanksEachSumsAChunkAndReadsTheOthersSums) {
  const auto programs = compile_streams(all_reduce("direct", 4), /*in_place=*/false);
  EXPECT_EQ(programs[1].to_string(),
            "signal 1\n"
            "wait 0 >= 1\n"
            "wait 2 >= 1\n"
            "wait 3 >= 1\n"
            "out[1] = 0:in[1] + 1:in[1] + 2:in[1] + 3:in[1]\n"
            "signal 3\n"
            "wait 0 >= 3\n"
            "out[0] = 0:out[0]\n"
            "wait 3 >= 3\n"
            "out[3] = 3:out[3]\n"
            "wait 2 >= 3\n"
            "out[2] = 2:out[2]\n"
            "signal 4\n"
            "wait 0 >= 4\n"
            "wait 2 >= 4\n"
            "wait 3 >= 4\n");
  EXPECT_EQ(programs[1].values, 4u);
  EXPECT_TRUE(programs[1].scratch_like.empty());
}

TEST(StreamProgram, OwnChunksAreCopiedBesideTheRest) {
  const Job job = make_job(*find_algorithm(Collective::kAllGather, "direct"), 2);
  const auto programs = compile_streams(job, /*in_place=*/false);
  EXPECT_EQ(programs[0].to_string(),
            "signal 1\n"
            "wait 1 >= 1\n"
            "out[1] = 1:in[1]\n"
            "out[0] = 0:in[0] (beside)\n"
            "signal 2\n"
            "wait 1 >= 2\n");
}

TEST(StreamCheck, FindsEachStepThatNeedsItsPlace) {
  for (const char* algorithm : {"one_shot", "direct", "ring", "recursive_doubling"}) {
    const Job job = all_reduce(algorithm, 4);
    const auto programs = compile_streams(job, /*in_place=*/false);
    for (size_t step = 0; step < programs[1].steps.size(); ++step) {
      const StreamStep& one = programs[1].steps[step];
      if (one.kind != StreamStep::Kind::kReduce || one.beside) continue;
      auto broken = programs;
      broken[1].steps[step].beside = true;
      EXPECT_NE(check_streams(job, broken, Memory::kSeparate), "") << algorithm << ", " << step;
    }
  }
}

// Every wait is needed. A signal is, too, but a later one may stand for it.
TEST(StreamCheck, FindsEachStepThatIsMissing) {
  for (const char* algorithm : {"one_shot", "direct", "ring", "recursive_doubling"})
    for (const Memory memory : {Memory::kSeparate, Memory::kInPlace}) {
      const Job job = all_reduce(algorithm, 4);
      const auto programs = compile_streams(job, memory == Memory::kInPlace);
      for (size_t rank = 0; rank < 4; ++rank) {
        const auto& steps = programs[rank].steps;
        size_t last_signal = 0;
        for (size_t step = 0; step < steps.size(); ++step)
          if (steps[step].kind == StreamStep::Kind::kSignal) last_signal = step;
        for (size_t step = 0; step < steps.size(); ++step) {
          if (steps[step].kind != StreamStep::Kind::kWait && step != last_signal) continue;
          auto broken = programs;
          broken[rank].steps.erase(broken[rank].steps.begin() + static_cast<ptrdiff_t>(step));
          EXPECT_NE(check_streams(job, broken, memory), "")
              << algorithm << ", rank " << rank << ", step " << step << '\n'
              << programs[rank].to_string();
        }
      }
    }
}

std::vector<StreamProgram> replayable_streams(const Job& job, Memory memory) {
  auto programs = compile_streams(job, memory == Memory::kInPlace);
  for (StreamProgram& program : programs) program = replayable(std::move(program), job.size());
  return programs;
}

TEST_P(EveryAlgorithm, IsReplayedByGraphs) {
  const Algorithm& algorithm = *GetParam();
  if (algorithm.collective == Collective::kBarrier) return;
  for (const int size : {2, 3, 5, 8}) {
    if (!algorithm.fits(size)) continue;
    const Job job = make_job(algorithm, size, size - 1);
    for (const Memory memory : {Memory::kSeparate, Memory::kInPlace}) {
      if (memory == Memory::kInPlace && !may_run_in_place(job.collective)) continue;
      const auto programs = replayable_streams(job, memory);
      for (uint64_t seed = 0; seed < 20; ++seed) {
        ASSERT_EQ(run_streams(job, programs, memory, seed, -1, 5), "") << size << " ranks";
        const int dies = static_cast<int>(seed) % size;
        ASSERT_EQ(run_streams(job, programs, memory, seed, dies, 5), "") << size << " ranks";
      }
    }
  }
}

// Without one of the last steps, some order of the ranks goes wrong. A wait may be for nothing.
TEST(StreamCheck, FindsEachStepThatReplaysNeed) {
  const Job job = all_reduce("direct", 3);
  const auto programs = replayable_streams(job, Memory::kInPlace);
  const size_t own = compile_streams(job, /*in_place=*/true)[1].steps.size();
  for (size_t step = own; step < programs[1].steps.size(); ++step) {
    auto broken = programs;
    broken[1].steps.erase(broken[1].steps.begin() + static_cast<ptrdiff_t>(step));
    std::string fault;
    for (uint64_t seed = 0; seed < 2000 && fault.empty(); ++seed)
      fault = run_streams(job, broken, Memory::kInPlace, seed, -1, 6);
    EXPECT_NE(fault, "") << "step " << step << '\n' << programs[1].to_string();
  }
}

}  // namespace
}  // namespace hccl_like
