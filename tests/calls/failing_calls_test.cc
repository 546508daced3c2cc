// A job of two ranks in which one call of the system fails, each in turn: it goes well, or both
// ranks end with an error, in time, and leave no descriptor open. HCCL_LIKE_CALLS_EVERY=1 tries all
// of them, some hundreds; else one in so many. A failure prints how to try it alone.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "collectives/engine/runtime.h"
#include "core/machine/thread_pool.h"
#include "tests/calls/failing_calls.h"
#include "tests/number_setting.h"
#include "transport/testing/descriptors.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{1500};
constexpr int kSaidWhy = 10, kLeftOpen = 11, kWrong = 12;
constexpr std::string_view kThreads = "pthread_create";

Call sum(std::vector<int32_t>& data) {
  const Region region{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(int32_t)};
  Call call{.collective = Collective::kAllReduce, .type = DataType::kInt32};
  call.input = call.output = Layout::even(region, 1, sizeof(int32_t));
  return call;
}

// The last call has begun before anybody waits for it, which is the background thread's.
void play(int rank, Store& store, const Config& config) {
  Runtime runtime(config);
  const auto communicator =
      runtime.create(store, rank, 2, "calls", kTimeout, Deadline::after(kTimeout));
  for (const size_t elements : {size_t{3}, size_t{100'000}, size_t{200'000}}) {
    std::vector<int32_t> data(elements, rank + 1);
    if (elements < 200'000) {
      communicator->run(sum(data));
    } else {
      const auto operation = communicator->prepare(sum(data));
      communicator->launch({&operation, 1}, /*waited_for=*/false);
      communicator->engine().wait(*operation, Deadline::never());
      if (const Error* error = operation->error()) throw Exception(*error);
    }
    if (data != std::vector<int32_t>(elements, 3)) std::_Exit(kWrong);
  }
}

// A failing call: its name, the rank, the index of the call and the error.
struct Case {
  int rank;
  std::string_view name;
  int index;
  int error;
};

std::string to_string(const Case& one) {
  return "rank " + std::to_string(one.rank) + ": " + std::string(one.name) + " " +
         std::to_string(one.index) +
         (one.error == calls::kShort    ? " moved fewer bytes"
          : one.error == calls::kNoMore ? " and all later ones failed"
                                        : " failed with " + errno_text(one.error));
}

// Whether an error says what befell this rank, who can read it in no errno.
bool says_why(const Exception& exception, int rank, const Case& one) {
  const std::string_view text = exception.what();
  if (one.name != kThreads || rank != one.rank) return !text.empty();
  return text.find("cannot start the thread that ") != text.npos &&
         text.find("ulimit -u") != text.npos;
}

int body(int rank, Store& store, const Config& config, const Case& one) {
  const size_t before = open_descriptors();
  if (rank == one.rank) calls::arm(one.name, one.index, one.error);
  int result = 0;
  try {
    play(rank, store, config);
  } catch (const Exception& exception) {
    result = says_why(exception, rank, one) ? kSaidWhy : 1;
  }
  calls::disarm();
  return open_descriptors() == before ? result : kLeftOpen;
}

class FailingCalls : public ::testing::TestWithParam<const char*> {};

TEST_P(FailingCalls, EndWellOrWithAnError) {
  const int every = std::max(1, static_cast<int>(number_setting("HCCL_LIKE_CALLS_EVERY", 37)));
  const char* const only = std::getenv("HCCL_LIKE_CALLS_ONLY");
  Config config;
  config.transports = {GetParam()};
  config.connect_timeout = milliseconds(1000);
  // How often each is called, by rank and name.
  const auto names = calls::names();
  auto* const counts = static_cast<int*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(counts, MAP_FAILED);
  ASSERT_TRUE(all_ok(run_ranks(2, [&](int rank, Store& store) {
    const int result = body(rank, store, config, {rank, names[0], -1, 0});
    for (size_t i = 0; i < names.size(); ++i)
      counts[static_cast<size_t>(rank) * names.size() + i] = calls::count(names[i]);
    return result;
  })));
  std::vector<Case> cases;
  for (int rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < names.size(); ++i)
      for (int index = 0;
           index < std::min(counts[static_cast<size_t>(rank) * names.size() + i], 40); ++index)
        for (const int error : calls::errors(names[i]))
          cases.push_back({rank, names[i], index, error});
  int taken = 0, went_well = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    // Threads are few, and each has its own way to do without.
    const bool take = only != nullptr
                          ? to_string(cases[i]).starts_with(only)
                          : i % static_cast<size_t>(every) == 0 || cases[i].name == kThreads;
    if (!take) continue;
    const auto outcomes =
        run_ranks(2, [&](int rank, Store& store) { return body(rank, store, config, cases[i]); },
                  {.timeout = milliseconds(15'000), .kill_on_failure = false});
    ++taken;
    went_well += all_ok(outcomes);
    for (const RankOutcome& one : outcomes)
      EXPECT_TRUE(one.ok() || one.exit_code == kSaidWhy)
          << to_string(outcomes) << "\nagain: HCCL_LIKE_CALLS_ONLY='" << to_string(cases[i])
          << "' calls_test";
  }
  std::printf("%d of %zu cases, of which %d went well\n", taken, cases.size(), went_well);
  ::munmap(counts, 4096);
}

TEST(FailingThreads, HelpersThatDoNotComeAreDoneWithoutUntilTheyDo) {
  ThreadPool thread_pool;
  const auto pass = [&] {
    std::vector<std::atomic<int>> times(100);
    thread_pool.run(4, 100, [&](uint32_t part) { ++times[part]; });
    return std::ranges::all_of(times, [](const auto& one) { return one == 1; });
  };
  calls::arm(kThreads, 1, calls::kNoMore);
  EXPECT_TRUE(pass());
  EXPECT_EQ(thread_pool.helpers(), 1u);
  calls::disarm();
  EXPECT_TRUE(pass());
  EXPECT_EQ(thread_pool.helpers(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Over, FailingCalls, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace hccl_like
