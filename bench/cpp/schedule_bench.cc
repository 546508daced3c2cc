// Measures the fixed cost of a call: the choice of an algorithm and the construction of its
// schedule. A communicator constructs each schedule once.
#include <benchmark/benchmark.h>

#include <string>

#include "collectives/registry/algorithms.h"
#include "collectives/selection/choose.h"
#include "collectives/topology/topology.h"

namespace hccl_like {
namespace {

void choose_allreduce(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const Topology topology = Topology::one_host(ranks);
  for (auto _ : state)
    benchmark::DoNotOptimize(choose(Collective::kAllReduce, uint64_t{1} << 20, 4, topology));
}
BENCHMARK(choose_allreduce)->ArgName("ranks")->Arg(2)->Arg(8)->Arg(64)->Arg(1000);

void make_schedule(benchmark::State& state, const Algorithm* algorithm) {
  const auto ranks = static_cast<int>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(algorithm->make(ranks / 3, ranks, 0));
}

void add_all() {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll})
    for (const Algorithm& algorithm : algorithms(collective)) {
      const std::string what =
          "make/" + std::string(name(collective)) + "/" + std::string(algorithm.name);
      auto* benchmark =
          benchmark::RegisterBenchmark(what.c_str(), make_schedule, &algorithm)->ArgName("ranks");
      for (const int ranks : {2, 8, 64})
        if (algorithm.fits(ranks)) benchmark->Arg(ranks);
    }
}

}  // namespace
}  // namespace hccl_like

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  hccl_like::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
