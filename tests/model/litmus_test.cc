// The modelled memory itself, on the small programs that memory models are compared by: which
// results there are, no more and no fewer.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/model/modelled_std.h"

namespace hccl_like::model {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSequential = std::memory_order_seq_cst;

struct Shared {
  Atomic<uint64_t> x, y;
  Plain plain;
  std::array<uint64_t, 4> r{9, 9, 9, 9};
};
using Body = std::function<void(Shared&)>;

// The values that the threads read, as digits, in all executions.
std::set<std::string> results(const std::vector<Body>& bodies, size_t digits) {
  std::set<std::string> found;
  const Verdict verdict = Explorer::explore([&](Explorer& explorer) {
    const auto shared = std::make_shared<Shared>();
    for (size_t i = 0; i < bodies.size(); ++i)
      explorer.thread("thread " + std::to_string(i), [shared, body = bodies[i]] { body(*shared); });
    explorer.finally([shared, &found, digits] {
      std::string text;
      for (size_t i = 0; i < digits; ++i) text += std::to_string(shared->r[i]);
      found.insert(text);
    });
  });
  EXPECT_EQ(verdict.failure, "");
  return found;
}

using Set = std::set<std::string>;

std::vector<Body> store_buffering(std::memory_order store, std::memory_order load, bool fences) {
  return {[=](Shared& s) {
            s.x.store(1, store);
            if (fences) modelled_fence(kSequential);
            s.r[0] = s.y.load(load);
          },
          [=](Shared& s) {
            s.y.store(1, store);
            if (fences) modelled_fence(kSequential);
            s.r[1] = s.x.load(load);
          }};
}

TEST(Litmus, StoresMayBeBufferedUnlessAFullFenceFollows) {
  EXPECT_EQ(results(store_buffering(kRelaxed, kRelaxed, false), 2), (Set{"00", "01", "10", "11"}));
  EXPECT_EQ(results(store_buffering(kRelease, kAcquire, false), 2), (Set{"00", "01", "10", "11"}));
  EXPECT_EQ(results(store_buffering(kRelaxed, kRelaxed, true), 2), (Set{"01", "10", "11"}));
  EXPECT_EQ(results(store_buffering(kSequential, kSequential, false), 2), (Set{"01", "10", "11"}));
}

std::vector<Body> message(std::memory_order store, std::memory_order load) {
  return {[=](Shared& s) {
            s.x.store(1, kRelaxed);
            s.y.store(1, store);
          },
          [=](Shared& s) {
            s.r[0] = s.y.load(load);
            s.r[1] = s.x.load(kRelaxed);
          }};
}

TEST(Litmus, AFlagCarriesWhatCameBeforeItIfReleasedAndAcquired) {
  const Set weak{"00", "01", "10", "11"}, strong{"00", "01", "11"};
  EXPECT_EQ(results(message(kRelaxed, kRelaxed), 2), weak);
  EXPECT_EQ(results(message(kRelease, kRelaxed), 2), weak);
  EXPECT_EQ(results(message(kRelaxed, kAcquire), 2), weak);
  EXPECT_EQ(results(message(kRelease, kAcquire), 2), strong);
}

TEST(Litmus, FencesReleaseAndAcquireForRelaxedAccesses) {
  const auto with = [](bool release, bool acquire) {
    return results({[=](Shared& s) {
                      s.x.store(1, kRelaxed);
                      if (release) modelled_fence(kRelease);
                      s.y.store(1, kRelaxed);
                    },
                    [=](Shared& s) {
                      s.r[0] = s.y.load(kRelaxed);
                      if (acquire) modelled_fence(kAcquire);
                      s.r[1] = s.x.load(kRelaxed);
                    }},
                   2);
  };
  EXPECT_FALSE(with(true, true).contains("10"));
  EXPECT_TRUE(with(false, true).contains("10"));
  EXPECT_TRUE(with(true, false).contains("10"));
}

// A text x is taken back, which y tells, and then written over while another thread reads it.
TEST(Litmus, AnAcquiringLoadDoesNotWaitForWhatWasReadBeforeIt) {
  const auto with = [](bool fence) {
    return results({[](Shared& s) {
                      s.y.store(1, kRelease);
                      modelled_fence(kSequential);
                      s.x.store(1, kRelaxed);
                    },
                    [=](Shared& s) {
                      s.r[0] = s.x.load(kRelaxed);
                      if (fence) modelled_fence(kAcquire);
                      s.r[1] = s.y.load(kAcquire);
                    }},
                   2);
  };
  EXPECT_EQ(with(false), (Set{"00", "01", "10", "11"}))
      << "10: another text is taken for the first";
  EXPECT_EQ(with(true), (Set{"00", "01", "11"}));
}

TEST(Litmus, OneLocationNeverGoesBackwards) {
  EXPECT_EQ(results({[](Shared& s) {
                       s.x.store(1, kRelaxed);
                       s.x.store(2, kRelaxed);
                     },
                     [](Shared& s) {
                       s.r[0] = s.x.load(kRelaxed);
                       s.r[1] = s.x.load(kRelaxed);
                     }},
                    2),
            (Set{"00", "01", "02", "11", "12", "22"}));
}

TEST(Litmus, StoresOfTwoThreadsMayLandInAnotherOrderThanTheyWereMade) {
  // Each thread's second store may come before the other's first, in both locations at once.
  const auto found = results({[](Shared& s) {
                                s.x.store(1, kRelaxed);
                                s.y.store(2, kRelaxed);
                              },
                              [](Shared& s) {
                                s.y.store(1, kRelaxed);
                                s.x.store(2, kRelaxed);
                              },
                              [](Shared& s) {
                                s.r[0] = s.x.load(kRelaxed);
                                s.r[1] = s.x.load(kRelaxed);
                                s.r[2] = s.y.load(kRelaxed);
                                s.r[3] = s.y.load(kRelaxed);
                              }},
                             4);
  EXPECT_TRUE(found.contains("2121"));
  EXPECT_TRUE(found.contains("1212"));
}

TEST(Litmus, ReadersMayDisagreeAboutIndependentStoresUnlessTheyFence) {
  const auto with = [](bool fences) {
    const auto look = [fences](Atomic<uint64_t>& first, Atomic<uint64_t>& second, uint64_t* r) {
      r[0] = first.load(kAcquire);
      if (fences) modelled_fence(kSequential);
      r[1] = second.load(kAcquire);
    };
    return results(
        {[](Shared& s) { s.x.store(1, kRelease); }, [](Shared& s) { s.y.store(1, kRelease); },
         [=](Shared& s) { look(s.x, s.y, &s.r[0]); }, [=](Shared& s) { look(s.y, s.x, &s.r[2]); }},
        4);
  };
  EXPECT_TRUE(with(false).contains("1010"));
  EXPECT_FALSE(with(true).contains("1010"));
}

TEST(Litmus, ExchangesLoseNothing) {
  const Body twice = [](Shared& s) { s.x.fetch_add(1, kRelaxed); };
  EXPECT_EQ(results({twice, twice, [](Shared& s) { s.r[0] = s.x.load(kRelaxed); }}, 1),
            (Set{"0", "1", "2"}));
  EXPECT_EQ(results({[](Shared& s) { s.r[0] = s.x.exchange(1, kRelaxed); },
                     [](Shared& s) { s.r[1] = s.x.exchange(1, kRelaxed); }},
                    2),
            (Set{"01", "10"}));
}

TEST(Litmus, SchedulesAreCountedThatAStateSeenBeforeStandsFor) {
  const auto schedules = [](size_t threads, size_t exchanges) {
    return Explorer::explore([=](Explorer& explorer) {
             const auto shared = std::make_shared<Shared>();
             for (size_t i = 0; i < threads; ++i)
               explorer.thread("thread " + std::to_string(i), [=] {
                 for (size_t n = 0; n < exchanges; ++n) shared->x.fetch_add(1, kRelaxed);
               });
           })
        .schedules;
  };
  EXPECT_EQ(schedules(2, 1), 2);
  EXPECT_EQ(schedules(2, 3), 20);     // 6! / 3!^2
  EXPECT_EQ(schedules(3, 2), 90);     // 6! / 2!^3
  EXPECT_EQ(schedules(3, 4), 34650);  // 12! / 4!^3
}

TEST(Litmus, AnExchangePassesOnWhatWasReleasedBeforeIt) {
  const auto found = results({[](Shared& s) {
                                s.x.store(1, kRelaxed);
                                s.y.store(1, kRelease);
                              },
                              [](Shared& s) { s.y.fetch_add(1, kRelaxed); },
                              [](Shared& s) {
                                s.r[0] = s.y.load(kAcquire);
                                s.r[1] = s.x.load(kRelaxed);
                              }},
                             2);
  EXPECT_TRUE(found.contains("21"));
  EXPECT_FALSE(found.contains("20"));
}

Verdict race(std::memory_order store, bool write_after) {
  return Explorer::explore([=](Explorer& explorer) {
    const auto shared = std::make_shared<Shared>();
    explorer.thread("first", [=] {
      shared->plain.write();
      shared->y.store(1, store);
      if (write_after) shared->plain.write();
    });
    explorer.thread("second", [=] {
      if (shared->y.load(kAcquire) == 1) shared->plain.read();
    });
  });
}

TEST(Litmus, AccessesToOrdinaryMemoryMustBeOrdered) {
  EXPECT_EQ(race(kRelease, false).failure, "");
  EXPECT_NE(race(kRelaxed, false).failure.find("a data race"), std::string::npos);
  EXPECT_NE(race(kRelease, true).failure.find("a data race"), std::string::npos);
}

TEST(Litmus, AThreadThatNobodyWakesIsReported) {
  const auto wait = [](bool ring) {
    return Explorer::explore([=](Explorer& explorer) {
      const size_t doorbell = explorer.add_bell();
      explorer.thread("sleeper", [&explorer, doorbell] {
        explorer.sleep(doorbell, std::source_location::current());
      });
      explorer.thread("waker", [&explorer, doorbell, ring] {
        if (ring) explorer.ring(doorbell, std::source_location::current());
      });
    });
  };
  EXPECT_EQ(wait(true).failure, "");
  EXPECT_NE(wait(false).failure.find("nobody can go on"), std::string::npos);
}

}  // namespace
}  // namespace hccl_like::model
