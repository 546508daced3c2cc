// The reduction kernels alone: GB/s of one operand, for every element type, in the second-level cache and in memory.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <string>
#include <vector>

#include "core/types.h"
#include "device/reduce/reduce.h"

namespace hccl_like {
namespace {

constexpr size_t kCache = 128 << 10;  // three operands of this size lie in an ordinary L2
constexpr size_t kMemory = 64 << 20;  // and these in no cache

std::vector<std::byte> operand(size_t bytes) { return std::vector<std::byte>(bytes, std::byte{1}); }

void report(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void combine_into_first(benchmark::State& state, Combine kernel, DataType type, size_t bytes) {
  auto a = operand(bytes);
  const auto b = operand(bytes);
  for (auto _ : state) {
    kernel(a.data(), a.data(), b.data(), bytes / size_of(type));
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void combine_elsewhere(benchmark::State& state, Combine kernel, DataType type, size_t bytes) {
  const auto a = operand(bytes), b = operand(bytes);
  auto out = operand(bytes);
  for (auto _ : state) {
    kernel(out.data(), a.data(), b.data(), bytes / size_of(type));
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void combine_four(benchmark::State& state, CombineMany kernel, DataType type, size_t bytes) {
  const auto a = operand(bytes), b = operand(bytes), c = operand(bytes), d = operand(bytes);
  auto out = operand(bytes);
  const std::vector<const std::byte*> sources{a.data(), b.data(), c.data(), d.data()};
  for (auto _ : state) {
    kernel(out.data(), sources, bytes / size_of(type));
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void add_all() {
  for (const auto& [place, bytes] : {std::pair{"L2", kCache}, std::pair{"memory", kMemory}})
    for (int t = 0; t < kDataTypes; ++t)
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        const Reduction kernels = reduction(type, op);
        // The average and the pre-multiplied sum combine as the sum does.
        if (!kernels.valid() || op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum) continue;
        const std::string what =
            std::string(name(op)) + "/" + std::string(name(type)) + "/" + place;
        benchmark::RegisterBenchmark(("a=a+b/" + what).c_str(), combine_into_first, kernels.combine,
                                     type, bytes);
        if (op != ReduceOp::kSum) continue;
        benchmark::RegisterBenchmark(("c=a+b/" + what).c_str(), combine_elsewhere, kernels.combine,
                                     type, bytes);
        benchmark::RegisterBenchmark(("e=a+b+c+d/" + what).c_str(), combine_four,
                                     kernels.combine_many, type, bytes);
      }
}

}  // namespace
}  // namespace hccl_like

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("instruction set", hccl_like::reduction_target());
  hccl_like::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
