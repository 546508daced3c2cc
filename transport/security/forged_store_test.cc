// Tests ranks with a store into which others write.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "core/base/error.h"
#include "transport/mesh/exchange.h"
#include "transport/security/identity.h"
#include "transport/testing/local_store.h"
#include "transport/testing/record_of.h"

namespace hccl_like {
namespace {

JobKey job_of(char letter) {
  Config config;
  config.secret = Secret::parse(std::string(40, letter));
  return JobKey::of(config);
}

// The error messages of three ranks; empty for a rank that met the others.
std::vector<std::string> meet(
    Store& store, const std::function<JobKey(int)>& job,
    const std::function<std::string(int)>& scope = [](int) { return "group"; }) {
  std::vector<std::string> texts(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const Roster roster =
            exchange_records(store, job(rank), record_of(rank), rank, 3,
                             Deadline::after(std::chrono::seconds(6)), scope(rank));
        for (size_t i = 0; i < 3; ++i)
          if (roster.members[i].hostname != "host" + std::to_string(i)) throw_misuse("wrong host");
      } catch (const Exception& exception) {
        texts[static_cast<size_t>(rank)] = exception.error().message;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return texts;
}

// Passes values on as a forger wants them.
class Tampered final : public Store {
 public:
  using Change = std::function<void(const std::string& key, std::string& value)>;
  Tampered(Store& store, Change change) : store_(store), change_(std::move(change)) {}
  void set(const std::string& key, const std::string& value) override {
    std::string changed = value;
    change_(key, changed);
    store_.set(key, changed);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_.get(key, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }

 private:
  Store& store_;
  const Change change_;
};

const char* const kWhose =
    ": its writer has another secret than this rank (its secret is that of HCCL_LIKE_SECRET), or "
    "somebody else wrote "
    "there; all ranks must have the same HCCL_LIKE_SECRET_FILE or HCCL_LIKE_SECRET";

TEST(ForgedStore, RanksWithOneSecretMeet) {
  LocalStore store;
  EXPECT_EQ(meet(store, [](int) { return job_of('s'); }), std::vector<std::string>(3));
}

TEST(ForgedStore, ARankWithAnotherSecretIsNamedByAll) {
  LocalStore store;
  const auto texts = meet(store, [](int rank) { return job_of(rank == 2 ? 'o' : 's'); });
  for (const size_t rank : {size_t{0}, size_t{1}})
    EXPECT_EQ(texts[rank],
              "rank " + std::to_string(rank) + " (host" + std::to_string(rank) + ", process " +
                  std::to_string(100 + rank) +
                  ") cannot join rank 2 (host2, process 102): its record in the store is not "
                  "authentic" +
                  kWhose);
  EXPECT_EQ(texts[2], std::string("rank 0's entry in the store is not authentic") + kWhose);
}

TEST(ForgedStore, ARankWithoutASecretIsNamedByAll) {
  LocalStore store;
  const auto texts = meet(store, [](int rank) { return rank == 1 ? JobKey() : job_of('s'); });
  EXPECT_NE(
      texts[0].find("cannot join rank 1 (host1, process 101): its record in the store is not"),
      std::string::npos)
      << texts[0];
  EXPECT_NE(texts[1].find("(it has no secret)"), std::string::npos) << texts[1];
  EXPECT_NE(texts[2].find("cannot join rank 1"), std::string::npos) << texts[2];
}

// Somebody who copies what two groups of a job write, as they write it, makes their parts of the
// store one.
TEST(ForgedStore, ARankOfAnotherGroupIsNone) {
  LocalStore store;
  const auto texts = meet(
      store, [](int) { return job_of('s'); },
      [](int rank) { return rank == 1 ? "other group" : "group"; });
  for (const size_t rank : {size_t{0}, size_t{2}})
    EXPECT_NE(texts[rank].find("cannot join rank 1 (host1, process 101): its record in the store "
                               "is not authentic"),
              std::string::npos)
        << texts[rank];
  EXPECT_NE(texts[1].find("rank 0's entry in the store is not authentic"), std::string::npos)
      << texts[1];
}

TEST(ForgedStore, ARecordThatIsChangedForGoodIsRefusedByName) {
  const std::map<std::string, Tampered::Change> changes{
      {"another port",
       [](const std::string&, std::string& value) {
         value.replace(value.find("\"port\":0"), 8, "\"port\":9");
       }},
      {"one bit", [](const std::string&, std::string& value) { value.back() ^= 1; }},
      {"garbage", [](const std::string&,
                     std::string& value) { value = "\xff\xfe!!" + std::string(5000, 'x'); }},
  };
  std::vector<std::thread> cases;
  for (const auto& [sort, change] : changes)
    cases.emplace_back([&] {
      LocalStore store;
      Tampered tampered(store, [&](const std::string& key, std::string& value) {
        if (key.ends_with("/1") && value.size() > 100) change(key, value);
      });
      const auto texts = meet(tampered, [](int) { return job_of('s'); });
      for (const size_t rank : {size_t{0}, size_t{2}})
        EXPECT_NE(texts[rank].find("cannot join rank 1"), std::string::npos)
            << sort << ": " << texts[rank];
    });
  for (std::thread& one : cases) one.join();
}

TEST(ForgedStore, WhatSomebodyWritesOverARecordOnceIsMended) {
  LocalStore store;
  bool done = false;
  Tampered tampered(store, [&](const std::string& key, std::string& value) {
    if (key.ends_with("/1") && value.size() > 100 && !std::exchange(done, true)) value = "forged";
  });
  EXPECT_EQ(meet(tampered, [](int) { return job_of('s'); }), std::vector<std::string>(3));
  EXPECT_TRUE(done);
}

TEST(ForgedStore, AListOfRanksThatIsChangedIsRefused) {
  LocalStore store;
  Tampered tampered(store, [](const std::string& key, std::string& value) {
    if (key.ends_with("/all")) value[3] = value[3] == '7' ? '8' : '7';
  });
  const auto texts = meet(tampered, [](int) { return job_of('s'); });
  EXPECT_EQ(texts[0], "") << "who wrote it knows what it wrote";
  for (const size_t rank : {size_t{1}, size_t{2}})
    EXPECT_EQ(texts[rank],
              std::string("rank 0's list of the ranks in the store is not authentic") + kWhose);
}

TEST(ForgedStore, AListThatIsEmptyOrShortIsRefused) {
  for (const std::string& list : {std::string(), std::string(40, '0')}) {
    LocalStore store;
    Tampered tampered(store, [&](const std::string& key, std::string& value) {
      if (key.ends_with("/all")) value = list;
    });
    const auto texts = meet(tampered, [](int) { return job_of('s'); });
    for (const size_t rank : {size_t{1}, size_t{2}})
      EXPECT_EQ(texts[rank],
                std::string("rank 0's list of the ranks in the store is not authentic") + kWhose);
  }
}

TEST(ForgedStore, AListThatIsNotProvedIsNotTakenApart) {
  constexpr size_t kDepth = 400'000;
  const std::vector<std::string> lists{
      "[{\"a\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + "},{},{}]",
      "[{\"a\":\"" + std::string(3 << 20, 'a') + "\"},{},{}]",
      "[]",
      "",
  };
  std::vector<std::thread> cases;
  for (const std::string& list : lists)
    cases.emplace_back([&] {
      LocalStore store;
      Tampered tampered(store, [&](const std::string& key, std::string& value) {
        if (key.ends_with("/all")) value = value.substr(0, size_t{4 * 16}) + list;
      });
      const auto texts = meet(tampered, [](int) { return job_of('s'); });
      for (const size_t rank : {size_t{1}, size_t{2}})
        EXPECT_EQ(texts[rank],
                  std::string("rank 0's list of the ranks in the store is not authentic") + kWhose)
            << list.substr(0, 20);
    });
  for (std::thread& one : cases) one.join();
}

}  // namespace
}  // namespace hccl_like
