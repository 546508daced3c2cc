// The reduction kernels alone: GB/s of one operand, for every element type, in the second-level
// cache and in memory; and on several threads, for long passes (--benchmark_filter=threads).
#include <benchmark/benchmark.h>

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "device/reduce/parallel.h"
#include "device/reduce/reduce.h"

namespace hccl_like {
namespace {

constexpr size_t kCache = 128 << 10;  // three operands of this size lie in an ordinary L2
constexpr size_t kMemory = 64 << 20;  // and these in no cache

// Numbers of ordinary size in every type: processors are slow with subnormal ones.
std::vector<std::byte> operand(size_t bytes) {
  return std::vector<std::byte>(bytes, std::byte{0x30});
}

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

void combine_twice(benchmark::State& state, CombineTwice kernel, DataType type, size_t bytes) {
  auto a = operand(bytes), b = operand(bytes);
  for (auto _ : state) {
    kernel(a.data(), b.data(), a.data(), b.data(), bytes / size_of(type));
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

void average(benchmark::State& state, DataType type, size_t bytes, size_t sources, bool twice) {
  const Reduction& kernels = reduction(type, ReduceOp::kAvg);
  std::vector<std::vector<std::byte>> operands(sources, operand(bytes));
  std::vector<const std::byte*> from;
  for (const auto& one : operands) from.push_back(one.data());
  auto out = operand(bytes);
  const Scaling by = scaling(type, ReduceOp::kAvg, static_cast<int>(sources), 1);
  for (auto _ : state) {
    kernels.combine_all(twice ? operands[0].data() : out.data(),
                        twice ? operands[1].data() : nullptr, from, bytes / size_of(type), by);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void add_averages() {
  for (const auto& [place, bytes] : {std::pair{"8", size_t{8}}, std::pair{"1K", size_t{1} << 10},
                                     std::pair{"L2", kCache}, std::pair{"memory", kMemory}})
    for (int t = 0; t < kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      if (!reduction(type, ReduceOp::kAvg).valid()) continue;
      const std::string what = "avg/" + std::string(name(type)) + "/" + place;
      const auto add = [&, bytes = bytes](const char* form, size_t sources, bool twice) {
        benchmark::RegisterBenchmark((form + what).c_str(), average, type, bytes, sources, twice);
      };
      add("c=a+b/", 2, false);
      add("a=b=a+b/", 2, true);
      add("e=a+b+c+d/", 4, false);
    }
}

void add_all() {
  for (const auto& [place, bytes] : {std::pair{"L2", kCache}, std::pair{"memory", kMemory}})
    for (int t = 0; t < kDataTypes; ++t)
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        const Reduction kernels = reduction(type, op);
        // A pre-multiplied sum is made as an average is.
        if (!kernels.valid() || op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum) continue;
        const std::string what =
            std::string(name(op)) + "/" + std::string(name(type)) + "/" + place;
        benchmark::RegisterBenchmark(("a=a+b/" + what).c_str(), combine_into_first, kernels.combine,
                                     type, bytes);
        if (op != ReduceOp::kSum) continue;
        benchmark::RegisterBenchmark(("c=a+b/" + what).c_str(), combine_elsewhere, kernels.combine,
                                     type, bytes);
        benchmark::RegisterBenchmark(("a=b=a+b/" + what).c_str(), combine_twice,
                                     kernels.combine_twice, type, bytes);
        benchmark::RegisterBenchmark(("e=a+b+c+d/" + what).c_str(), combine_four,
                                     kernels.combine_many, type, bytes);
      }
}

// `threads` threads at work; 0: as many as the thread pool finds idle cores for.
void combine_together(benchmark::State& state, DataType type, size_t bytes, size_t threads) {
  ThreadPool thread_pool;
  const auto a = operand(bytes), b = operand(bytes);
  auto out = operand(bytes);
  const Combine kernel = reduction(type, ReduceOp::kSum).combine;
  size_t total = 0;
  for (auto _ : state) {
    const size_t now = threads != 0 ? threads : thread_pool.threads(bytes, 1);
    parallel_combine({thread_pool, now}, kernel, out.data(), a.data(), b.data(),
                     bytes / size_of(type), size_of(type));
    total += now;
    benchmark::ClobberMemory();
  }
  report(state, bytes);
  state.counters["threads"] = static_cast<double>(total) / static_cast<double>(state.iterations());
}

void copy_together(benchmark::State& state, size_t bytes, size_t threads) {
  ThreadPool thread_pool;
  const auto from = operand(bytes);
  auto to = operand(bytes);
  for (auto _ : state) {
    parallel_copy({thread_pool, threads != 0 ? threads : thread_pool.threads(bytes, 1)}, to.data(),
                  from.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void add_together() {
  const auto named = [](const std::string& what, size_t bytes, size_t threads) {
    return what + "/" + std::to_string(bytes >> 20) + "MiB/" +
           (threads == 0 ? "idle threads" : std::to_string(threads) + " threads");
  };
  for (const size_t bytes : {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 64 << 20})
    for (const size_t threads : {1, 2, 0}) {
      for (const DataType type : {DataType::kFloat32, DataType::kBFloat16})
        benchmark::RegisterBenchmark(
            named("c=a+b/" + std::string(name(type)), bytes, threads).c_str(), combine_together,
            type, bytes, threads)
            ->UseRealTime();
      benchmark::RegisterBenchmark(named("copy", bytes, threads).c_str(), copy_together, bytes,
                                   threads)
          ->UseRealTime();
    }
}

}  // namespace
}  // namespace hccl_like

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("instruction set", hccl_like::reduction_target());
  hccl_like::add_all();
  hccl_like::add_averages();
  hccl_like::add_together();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
