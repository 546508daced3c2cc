// Measures the cost of the check of calls (collectives/call/fingerprint.h), beside the shortest
// call that includes it: an all_reduce of 8 B over the board. Ranks are threads.
//
// The check can't be left out to compare: every call's line has a fingerprint. So its parts are
// timed alone, as the call makes them: the fingerprint of a call, written beside the input and held
// against that of every other rank.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "collectives/call/fingerprint.h"
#include "collectives/engine/runtime.h"
#include "transport/testing/local_store.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 200, kCalls = 500;
constexpr std::chrono::seconds kTimeout{20};

// The least of many batches, by call.
template <class Body>
double nanoseconds(Body&& body) {
  double least = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = Clock::now();
    for (int call = 0; call < kCalls; ++call) body();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    least = std::min(least, took.count() / kCalls);
  }
  return least;
}

// The compiler can't know what is read, nor leave out what is written.
template <class T>
T unknown(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

double unknown_factor() { return std::bit_cast<double>(unknown(std::bit_cast<uint64_t>(1.0))); }

double check(int ranks) {
  std::vector<uint64_t> lines(static_cast<size_t>(ranks) * 16);  // a line of 128 bytes each
  bool agree = true;
  const double time = nanoseconds([&] {
    const Fingerprint call{
        .collective = unknown(Collective::kAllReduce),
        .type = unknown(DataType::kFloat32),
        .reduces = true,
        .detail =
            with_factor(mix(unknown(uint64_t{8}), unknown(uint64_t{0}) << 8 | unknown(uint64_t{1})),
                        unknown_factor()),
    };
    const uint64_t own = call.encode();
    for (int rank = 0; rank < ranks; ++rank) lines[static_cast<size_t>(rank) * 16] = own;
    asm volatile("" : : "r"(lines.data()) : "memory");
    for (int rank = 1; rank < ranks; ++rank) agree &= lines[static_cast<size_t>(rank) * 16] == own;
  });
  return unknown(agree) ? time : 0;
}

double all_reduce(int ranks) {
  LocalStore store;
  double time = 0;
  const auto work = [&](int rank) {
    Runtime runtime{Config()};
    const auto group =
        runtime.create(store, rank, ranks, "check", kTimeout, Deadline::after(kTimeout));
    std::array<float, 2> values{1, 1};
    const Region region{reinterpret_cast<std::byte*>(values.data()), sizeof values};
    const double own = nanoseconds([&] {
      Call call;
      call.collective = Collective::kAllReduce;
      call.type = DataType::kFloat32;
      call.op = ReduceOp::kMax;  // stays as small as it is
      call.input = call.output = Layout::even(region, 1, sizeof(float));
      group->run(std::move(call));
    });
    if (rank == 0) time = own;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return time;
}

}  // namespace
}  // namespace hccl_like

int main() {
  std::printf("%6s %16s %10s %8s\n", "ranks", "all_reduce (ns)", "check (ns)", "share");
  for (const int ranks : {2, 4}) {
    const double call = hccl_like::all_reduce(ranks), check = hccl_like::check(ranks);
    std::printf("%6d %16.0f %10.1f %7.2f%%\n", ranks, call, check, 100 * check / call);
  }
}
