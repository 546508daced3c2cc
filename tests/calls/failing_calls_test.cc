// A job of two ranks in which one call of the system fails, each in turn: it goes well, or both ranks end with an error, in time,
// and leave no descriptor open. HCCL_LIKE_CALLS_EVERY=1 tries all of them, some hundreds; else one in so many.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "collectives/runtime.h"
#include "tests/calls/failing_calls.h"
#include "tests/number_setting.h"
#include "transport/testing/descriptors.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{1500};
constexpr int kSaidWhy = 10, kLeftOpen = 11, kWrong = 12;

void play(int rank, Store& store, const Config& config) {
  Runtime runtime(config);
  const auto communicator =
      runtime.create(store, rank, 2, "calls", kPatience, Deadline::after(kPatience));
  for (const size_t elements : {size_t{3}, size_t{100'000}}) {
    std::vector<int32_t> data(elements, rank + 1);
    const Region region{reinterpret_cast<std::byte*>(data.data()), elements * sizeof(int32_t)};
    Call call{.collective = Collective::kAllReduce, .type = DataType::kInt32};
    call.input = call.output = Layout::even(region, 1, sizeof(int32_t));
    communicator->run(std::move(call));
    if (data != std::vector<int32_t>(elements, 3)) std::_Exit(kWrong);
  }
}

// What fails, and at which rank.
struct Case {
  int rank;
  std::string_view name;
  int index;
  int error;
};

std::string to_string(const Case& one) {
  return "rank " + std::to_string(one.rank) + ": " + std::string(one.name) + " " +
         std::to_string(one.index) +
         (one.error == calls::kShort ? " moved fewer bytes"
                                     : " failed with " + errno_text(one.error));
}

int body(int rank, Store& store, const Config& config, const Case& one) {
  const size_t before = open_descriptors();
  if (rank == one.rank) calls::arm(one.name, one.index, one.error);
  int result = 0;
  try {
    play(rank, store, config);
  } catch (const Exception& exception) {
    result = exception.what()[0] != '\0' ? kSaidWhy : 1;
  }
  calls::disarm();
  return open_descriptors() == before ? result : kLeftOpen;
}

class FailingCalls : public ::testing::TestWithParam<const char*> {};

TEST_P(FailingCalls, EndWellOrWithAnError) {
  const int every = std::max(1, static_cast<int>(number_setting("HCCL_LIKE_CALLS_EVERY", 19)));
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
  for (size_t i = 0; i < cases.size(); i += static_cast<size_t>(every)) {
    const auto outcomes =
        run_ranks(2, [&](int rank, Store& store) { return body(rank, store, config, cases[i]); },
                  {.timeout = milliseconds(15'000), .kill_on_failure = false});
    ++taken;
    went_well += all_ok(outcomes);
    for (const RankOutcome& one : outcomes)
      EXPECT_TRUE(one.ok() || one.exit_code == kSaidWhy)
          << to_string(cases[i]) << ": " << to_string(outcomes);
  }
  std::printf("%d of %zu cases, of which %d went well\n", taken, cases.size(), went_well);
  ::munmap(counts, 4096);
}

INSTANTIATE_TEST_SUITE_P(Over, FailingCalls, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace hccl_like
