// How a thread pool shares work (core/base/parts.h, as core/machine/thread_pool.cc uses it), in
// every execution: each part is done once, nobody looks at work that is over, and what was done can
// be seen by the one who offered it.
#include <gtest/gtest.h>

#include "core/base/parts.h"
#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

constexpr uint32_t kParts = 2;

struct Shared {
  Parts parts;
  Plain work;  // what a part is
  std::array<Plain, kParts> results;
  std::array<int, kParts> times{};
  std::atomic<uint32_t> ending{0};
  size_t bell = Explorer::active()->add_bell();

  void work_off() {
    while (const auto part = parts.take()) {
      work.read();
      results[*part].write();
      ++times[*part];
      parts.done();
    }
  }
  void ring() { Explorer::active()->ring(bell, std::source_location::current()); }
};

// One offers work twice, and a helper helps.
Verdict share(Flaw flaw = {}) {
  return Explorer::explore(
      [](Explorer& explorer) {
        const auto shared = std::make_shared<Shared>();
        explorer.thread("caller", [shared] {
          for (int pass = 1; pass <= 2; ++pass) {
            shared->work.write();
            shared->parts.offer(kParts);
            shared->ring();
            shared->work_off();
            do Explorer::active()->landmark(static_cast<uint64_t>(pass));
            while (!shared->parts.all_done());
            for (uint32_t part = 0; part < kParts; ++part) {
              shared->results[part].read();
              check(shared->times[part] == pass, "a part was not done once");
            }
          }
          shared->ending.store(1, std::memory_order_relaxed);
          shared->ring();
        });
        explorer.thread("helper", [shared] {
          do {
            Explorer::active()->landmark(0);
            Explorer::active()->sleep(shared->bell, std::source_location::current());
            shared->work_off();
          } while (shared->ending.load(std::memory_order_relaxed) == 0);
        });
      },
      flaw);
}

TEST(PartsModel, EachPartIsDoneOnceAndSeen) { EXPECT_TRUE(holds(share(), 1'000, kMany)); }

TEST(PartsModel, OffersAndResultsMustBeReleasedAndAcquired) {
  for (const char* function : {"Parts::offer", "Parts::take", "Parts::done", "Parts::all_done"})
    EXPECT_TRUE(fails_with(share({.relaxed_inside = function}), kRace)) << function;
}

}  // namespace
}  // namespace hccl_like::model
