// Lists of ranks that travel down a tree, and what the store serves then.
#include "transport/mesh/roster_tree.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "transport/mesh/group_entries.h"
#include "transport/testing/local_store.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/record_of.h"

namespace hccl_like {
namespace {

using std::chrono::seconds;

TEST(RosterTree, HasEveryRankOnceAndIsFlat) {
  for (const int size : {1, 2, 8, 9, 10, 73, 74, 1024, 100'000}) {
    std::vector<int> parents(static_cast<size_t>(size), -1), depth(static_cast<size_t>(size), 0);
    for (int rank = 0; rank < size; ++rank) {
      const auto children = roster_children(rank, size);
      EXPECT_LE(children.size(), 8);
      for (const int child : children) {
        ASSERT_GT(child, rank);
        ASSERT_LT(child, size);
        EXPECT_EQ(std::exchange(parents[static_cast<size_t>(child)], rank), -1);
        depth[static_cast<size_t>(child)] = depth[static_cast<size_t>(rank)] + 1;
      }
    }
    for (int rank = 1; rank < size; ++rank) ASSERT_NE(parents[static_cast<size_t>(rank)], -1);
    EXPECT_LE(depth.back(), 6);
  }
}

// Counts what each rank gets; a rank has one of its own.
class CountingStore final : public Store {
 public:
  CountingStore(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    std::string value = store_.get(key, deadline);
    bytes += value.size();
    lists += key.ends_with("/all");
    ++requests;
    return value;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    ++requests;
    return store_.add(key, amount);
  }
  size_t bytes = 0, requests = 0, lists = 0;

 private:
  Store& store_;
};

// Carries lists between the ranks of this process.
struct Post {
  std::map<int, std::string> lists;
  std::set<int> unreachable;
};
class FakeCourier final : public RosterCourier {
 public:
  FakeCourier(Post& post, int rank) : post_(post), rank_(rank) {}
  std::chrono::milliseconds grace() const override { return std::chrono::milliseconds(0); }
  void expect(const std::string& group) override { expected.insert(group); }
  void forget(const std::string& group) override { expected.erase(group); }
  std::string receive(const std::string& group, Deadline) override {
    EXPECT_TRUE(expected.contains(group));
    const auto found = post_.lists.extract(rank_);
    return found.empty() ? "" : found.mapped();
  }
  std::map<int, std::string> hand(const std::string&, const std::string& list,
                                  const std::vector<RosterChild>& children, Deadline) override {
    std::map<int, std::string> problems;
    for (const RosterChild& child : children) {
      EXPECT_EQ(child.record.pid, child.rank);
      if (post_.unreachable.contains(child.rank))
        problems.emplace(child.rank, "unreachable");
      else
        post_.lists.emplace(child.rank, list);
    }
    return problems;
  }
  std::multiset<std::string> expected;

 private:
  Post& post_;
  const int rank_;
};

std::string mark_of(int rank) {
  std::string digits = std::to_string(rank + 1);
  return std::string(kMarkDigits - digits.size(), '0') + digits;
}

ProcessRecord record_in_tree(int rank) {
  ProcessRecord record = record_of(0);
  record.id = mark_of(rank) + mark_of(rank);
  record.hostname = "host" + std::to_string(rank / 8);
  record.pid = rank;
  return record;
}

// A group whose ranks meet one after the other, in the order of the tree, in this thread.
struct Meeting {
  explicit Meeting(int the_size) : size(the_size) {
    for (int rank = 1; rank < size; ++rank)
      proved.set(below + std::to_string(rank), mark_of(rank) + record_in_tree(rank).serialize());
  }
  GroupEntries entries(ProvedStore& in, RosterCourier& courier, int rank) {
    return {in,
            &courier,
            rank,
            size,
            record_in_tree(rank).serialize(),
            Deadline::after(seconds(60)),
            mark_of(rank)};
  }
  std::string lead() {
    FakeCourier courier(post, 0);
    GroupEntries leader = entries(proved, courier, 0);
    const std::string all = leader.lead().value;
    leader.hand_down(all);
    return all;
  }
  // The rank joins and hands the list on. Returns the counts of its requests to the store.
  CountingStore join(int rank, const std::string& all) {
    CountingStore counted(store);
    ProvedStore its(counted, job, "scope");
    FakeCourier courier(post, rank);
    {
      GroupEntries member = entries(its, courier, rank);
      const proof::Opened got = member.join();
      EXPECT_TRUE(got.proved);
      EXPECT_TRUE(got.value == all) << "rank " << rank;
      member.hand_down(got.value);
    }
    EXPECT_TRUE(courier.expected.empty());
    return counted;
  }

  const int size;
  const JobKey job;
  LocalStore store;
  ProvedStore proved{store, job, "scope"};
  const std::string below = "hccl_like/" + std::to_string(size) + "/" + mark_of(0) + "/";
  Post post;
};

TEST(RosterTree, TheStoreServesTheListToNobody) {
  Meeting meeting(2000);
  const std::string all = meeting.lead();
  for (int rank = 1; rank < meeting.size; ++rank) {
    const CountingStore served = meeting.join(rank, all);
    const size_t children = roster_children(rank, meeting.size).size();
    ASSERT_EQ(served.lists, 0) << "rank " << rank;
    ASSERT_EQ(served.requests, 2 + children);  // the round, rank 0's mark, the children's records
    ASSERT_LE(served.bytes, 64 + children * 512);
  }
  EXPECT_TRUE(meeting.post.lists.empty());
}

// The whole path of a few ranks: each but the last hands the list to its children.
TEST(RosterTree, TheStoreServesTheSameAtAHundredThousandRanks) {
  Meeting meeting(100'000);
  const std::string all = meeting.lead();
  for (const int last : {1, 8, 4'681, 12'499, 54'321, 99'999}) {
    std::vector<int> path;
    for (int rank = last; rank > 0; rank = (rank - 1) / 8) path.insert(path.begin(), rank);
    EXPECT_LE(path.size(), 6);
    meeting.post.lists.clear();
    meeting.post.lists[path.front()] = meeting.proved.seal(meeting.below + "all", all);
    for (const int rank : path) {
      const CountingStore served = meeting.join(rank, all);
      const size_t children = roster_children(rank, meeting.size).size();
      EXPECT_EQ(served.lists, 0);
      EXPECT_EQ(served.requests, 2 + children);
      EXPECT_LE(served.bytes, 64 + children * 512);
    }
  }
}

TEST(RosterTree, AChildThatCannotBeReachedReadsTheStoreAndItsChildrenDoNot) {
  Meeting meeting(100);
  meeting.post.unreachable = {1, 9};  // 9 is a child of 1
  const std::string all = meeting.lead();
  for (int rank = 1; rank < meeting.size; ++rank) {
    if (rank == 9) continue;  // its children come from rank 0, too
    ASSERT_EQ(meeting.join(rank, all).lists, rank == 1) << "rank " << rank;
  }
}

TEST(RosterTree, AListOfAnotherGroupIsIgnored) {
  Meeting meeting(2);
  const std::string all = meeting.lead();
  const JobKey job;
  ProvedStore other(meeting.store, job, "another scope");
  meeting.post.lists[1] = other.seal(meeting.below + "all", "0" + all.substr(1));
  EXPECT_EQ(meeting.join(1, all).lists, 1);
}

TEST(RosterTree, ARankWhoseRank0KnowsNoTreeReadsTheStore) {
  Meeting meeting(2);
  const std::string all = GroupEntries(meeting.proved, nullptr, 0, 2, record_in_tree(0).serialize(),
                                       Deadline::never(), mark_of(0))
                              .lead()
                              .value;
  EXPECT_EQ(meeting.join(1, all).lists, 1);
}

// A rank whose mesh is driven by a thread while it meets.
struct DrivenRank {
  explicit DrivenRank(const Config& config) : rank(config) {
    driver = std::thread([this] {
      while (!stop) {
        rank.poller.poll();
        rank.mesh.poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  ~DrivenRank() {
    stop = true;
    driver.join();
  }
  MeshRank rank;
  std::atomic<bool> stop{false};
  std::thread driver;
};

class RosterTreeOver : public testing::TestWithParam<const char*> {};

TEST_P(RosterTreeOver, RanksThatListen) {
  constexpr int kRanks = 12;
  Config config = config_with({GetParam()});
  config.tree_ranks = 2;
  LocalStore store;
  std::vector<CountingStore> counted(kRanks, CountingStore(store));
  std::vector<std::vector<std::string>> ids(2 * kRanks);
  std::vector<std::thread> ranks;
  std::vector<std::unique_ptr<DrivenRank>> driven;
  for (int rank = 0; rank < kRanks; ++rank) driven.push_back(std::make_unique<DrivenRank>(config));
  const auto meet = [&](int rank, Store& in, std::vector<std::string>& members) {
    const Roster roster = driven[static_cast<size_t>(rank)]->rank.mesh.exchange(
        in, rank, kRanks, Deadline::after(seconds(20)));
    for (const auto& member : roster.members) members.push_back(member.id);
  };
  // Two groups at once.
  PrefixedStore other(store, "other/");
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    ranks.emplace_back([&, rank, i] { meet(rank, counted[i], ids[i]); });
    ranks.emplace_back([&, rank, i] { meet(rank, other, ids[kRanks + i]); });
  }
  for (std::thread& one : ranks) one.join();
  std::vector<std::string> expected;
  for (const auto& one : driven) expected.push_back(one->rank.mesh.self().id);
  for (const auto& members : ids) EXPECT_EQ(members, expected);
  for (const CountingStore& one : counted) EXPECT_EQ(one.lists, 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, RosterTreeOver, testing::Values("tcp", "shm"));

TEST(RosterTree, NobodyWaitsForAChildThatHasEnded) {
  Config config = config_with({"tcp"});
  config.tree_ranks = 2;
  LocalStore store;
  const JobKey job;
  ProvedStore proved(store, job, "");
  ProcessRecord ended;
  {
    Poller poller;
    ended = Mesh(config, poller).self();
  }
  DrivenRank leader(config);
  Roster roster;
  std::thread leads(
      [&] { roster = leader.rank.mesh.exchange(store, 0, 2, Deadline::after(seconds(20))); });
  const std::string mark = proved.get("hccl_like/2/1", Deadline::after(seconds(20))).value;
  proved.set("hccl_like/2/" + mark + "/1", mark_of(1) + ended.serialize());
  const auto start = Deadline::Clock::now();
  leads.join();
  EXPECT_LT(Deadline::Clock::now() - start, seconds(4));
  ASSERT_EQ(roster.members.size(), 2);
  EXPECT_EQ(roster.members[1].id, ended.id);
}

}  // namespace
}  // namespace hccl_like
