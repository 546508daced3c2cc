// Ranks that cannot be one job because they are set up differently: all of them say who and what.
// Ranks that give up before the others have come, and come again.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "transport/bootstrap/greeting.h"
#include "transport/mesh/exchange.h"
#include "transport/security/identity.h"
#include "transport/testing/local_store.h"
#include "transport/testing/record_of.h"

namespace hccl_like {
namespace {

std::string protocol(uint32_t version) { return "\"protocol\":" + std::to_string(version); }

// The store as a process of the next version sees it: exchanges the protocol versions in all texts
// that it writes and reads.
class NextVersion final : public Store {
 public:
  explicit NextVersion(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, exchanged(value));
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return exchanged(store_.get(key, deadline));
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }

 private:
  // Ours for theirs, and the reverse: to a rank its own version is the right one.
  static std::string exchanged(std::string text) {
    const std::string ours = protocol(kProtocolVersion), theirs = protocol(kProtocolVersion + 1);
    for (size_t at = text.find("\"protocol\":"); at != std::string::npos;
         at = text.find("\"protocol\":", at + 1))
      text.replace(at, ours.size(), text.compare(at, ours.size(), ours) == 0 ? theirs : ours);
    return text;
  }
  Store& store_;
};

// The error messages of three ranks.
std::vector<std::string> refusals(const std::function<ProcessRecord(int)>& record, bool next) {
  LocalStore store;
  NextVersion other(store);
  std::vector<std::string> texts(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      Store& mine = next && rank == 1 ? static_cast<Store&>(other) : store;
      try {
        exchange_records(mine, JobKey(), record(rank), rank, 3,
                         Deadline::after(std::chrono::seconds(20)));
      } catch (const Exception& exception) {
        EXPECT_EQ(exception.code(), ErrorCode::kMismatch);
        texts[static_cast<size_t>(rank)] = exception.error().message;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return texts;
}

TEST(Mismatch, OfVersionsIsToldByAllRanks) {
  const auto texts = refusals(record_of, true);
  const std::string ours = std::to_string(kProtocolVersion);
  const std::string theirs = std::to_string(kProtocolVersion + 1);
  const std::string advice = " of the protocol and this rank version ";
  const std::string what = ": install the same release of hccl-like on all hosts";
  EXPECT_EQ(
      texts[0],
      "rank 0 (host0, process 100) cannot join rank 1 (host1, process 101): it speaks version " +
          theirs + advice + ours + what);
  // To itself, it is the others who are one version ahead.
  EXPECT_EQ(
      texts[1],
      "rank 1 (host1, process 101) cannot join rank 0 (host0, process 100): it speaks version " +
          theirs + advice + ours + what);
  EXPECT_EQ(
      texts[2],
      "rank 2 (host2, process 102) cannot join rank 1 (host1, process 101): it speaks version " +
          theirs + advice + ours + what);
}

TEST(Mismatch, OfSettingsIsToldByAllRanksAlike) {
  const auto texts = refusals(
      [](int rank) {
        ProcessRecord record = record_of(rank);
        if (rank == 2) record.settings["HCCL_LIKE_CONNECT"] = "eager";
        return record;
      },
      false);
  for (const std::string& text : texts)
    EXPECT_EQ(text,
              "HCCL_LIKE_CONNECT is not set on rank 0 (host0, process 100) and eager on rank 2 "
              "(host2, process 102); set it alike on all ranks");
}

// ---

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 3;

Roster meet(Store& store, int rank, Deadline deadline, int64_t process = 0) {
  ProcessRecord record = record_of(rank);
  record.pid += process;
  return exchange_records(store, JobKey(), record, rank, kRanks, deadline);
}

std::future<Roster> meet_aside(Store& store, int rank, int64_t process = 0) {
  return std::async(std::launch::async, [&store, rank, process] {
    return meet(store, rank, Deadline::after(seconds(60)), process);
  });
}

// Rank 0, once it has opened its round.
std::future<Roster> lead_aside(Store& store, Deadline deadline) {
  auto leader =
      std::async(std::launch::async, [&store, deadline] { return meet(store, 0, deadline); });
  store.get("hccl_like/" + std::to_string(kRanks) + "/1", Deadline::after(seconds(60)));
  return leader;
}

// Runs `first` before a rank that gives up says so.
class SlowToLeave final : public Store {
 public:
  SlowToLeave(Store& store, std::function<void()> first)
      : store_(store), first_(std::move(first)) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_.get(key, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    if (amount == 1) first_();
    return store_.add(key, amount);
  }

 private:
  Store& store_;
  const std::function<void()> first_;
};

TEST(RanksThatGiveUp, AreNotUsedIfTheyWereInTime) {
  LocalStore store;
  auto leader = lead_aside(store, Deadline::after(seconds(60)));
  try {
    meet(store, 1, Deadline::after(milliseconds(100)));
    ADD_FAILURE() << "rank 2 has not come";
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kTimeout);
    EXPECT_TRUE(exception.error().message.ends_with(
        " s waiting for ranks [2] of 3 to join the group; check that they were started and use the "
        "same store"))
        << exception.error().message;
  }
  auto last = meet_aside(store, 2);
  auto again = meet_aside(store, 1, 1000);
  const Roster roster = leader.get();
  EXPECT_EQ(roster.members[1].pid, record_of(1).pid + 1000);
  for (const Roster& other : {last.get(), again.get()}) {
    EXPECT_EQ(other.communicator, roster.communicator);
    for (size_t rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(other.members[rank].pid, roster.members[rank].pid);
  }
}

TEST(RanksThatGiveUp, HaveJoinedIfTheyWereTooLate) {
  LocalStore store;
  auto leader = lead_aside(store, Deadline::after(seconds(60)));
  uint64_t communicator = 0;
  SlowToLeave slow(store, [&] {
    auto last = meet_aside(store, 2);
    communicator = leader.get().communicator;
    last.get();
  });
  EXPECT_EQ(meet(slow, 1, Deadline::after(milliseconds(100))).communicator, communicator);
  EXPECT_NE(communicator, 0);
}

TEST(RanksThatGiveUp, AreMissedUntilTheyComeAgain) {
  LocalStore store;
  auto leader = lead_aside(store, Deadline::after(milliseconds(600)));
  EXPECT_THROW(meet(store, 1, Deadline::after(milliseconds(100))), Exception);
  auto last = meet_aside(store, 2);
  try {
    leader.get();
    ADD_FAILURE() << "rank 1 has not come again";
  } catch (const Exception& exception) {
    EXPECT_NE(exception.error().message.find("waiting for ranks [1] of 3"), std::string::npos)
        << exception.error().message;
  }
  auto next = meet_aside(store, 0), again = meet_aside(store, 1);
  EXPECT_EQ(next.get().communicator, again.get().communicator);
  last.get();
}

}  // namespace
}  // namespace hccl_like
