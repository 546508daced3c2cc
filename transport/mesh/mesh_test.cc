#include "transport/mesh/mesh.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "transport/testing/descriptors.h"
#include "transport/testing/local_store.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void expect_all_transports(const std::vector<Link*>& links, std::string_view transport) {
  for (const Link* link : links)
    if (link != nullptr && link->transport() != transport)
      throw_error(ErrorCode::kMismatch, "a link over " + std::string(link->transport()));
}

class MeshOver : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(MeshOver, JoinsEveryRankWithEveryOther) {
  const auto& [transport, size] = GetParam();
  const auto outcomes = run_ranks(size, [&](int rank, Store& store) {
    MeshRank self(config_with({transport}));
    const auto links = self.join(store, rank, size);
    expect_all_transports(links, transport);
    all_to_all(self, links, rank, 1);
    all_to_all(self, links, rank, 100'003, 2);
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

const std::vector<std::string> kTransports{"shm", "tcp"};

INSTANTIATE_TEST_SUITE_P(Ranks, MeshOver,
                         testing::Combine(testing::ValuesIn(kTransports),
                                          testing::Values(1, 2, 3, 5, 8)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + std::to_string(std::get<1>(test.param));
                         });

TEST(Mesh, ChoosesPeerByPeerWhereRanksDiffer) {
  // Ranks 0 and 1 take shared memory where they can, rank 2 speaks tcp only.
  const auto outcomes = run_ranks(3, [](int rank, Store& store) {
    MeshRank self(config_with(rank == 2 ? std::vector<std::string>{"tcp"}
                                        : std::vector<std::string>{"shm", "tcp"}));
    const auto links = self.join(store, rank, 3);
    all_to_all(self, links, rank, 12'345);
    for (size_t peer = 0; peer < 3; ++peer) {
      if (links[peer] == nullptr) continue;
      const bool shm = rank != 2 && peer != 2;
      if (links[peer]->transport() != (shm ? "shm" : "tcp")) return 3;
      const std::string text = self.mesh.describe(*links[peer]);
      if (text.find("(same host)") == std::string::npos) throw std::runtime_error(text);
    }
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, AgreesOnACommunicatorThatNobodyHadBefore) {
  LocalStore store;
  std::set<uint64_t> seen;
  for (int generation = 0; generation < 3; ++generation) {
    std::vector<uint64_t> drawn(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        MeshRank self(config_with({"tcp"}));
        const Roster roster = self.mesh.exchange(store, rank, 3, Deadline::after(seconds(20)));
        drawn[static_cast<size_t>(rank)] = roster.communicator;
        EXPECT_EQ(roster.members.size(), 3u);
        EXPECT_EQ(roster.members[static_cast<size_t>(rank)].id, self.mesh.self().id);
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(drawn[0], drawn[1]);
    EXPECT_EQ(drawn[0], drawn[2]);
    EXPECT_TRUE(seen.insert(drawn[0]).second);
  }
}

TEST(Mesh, ASecondGenerationOnOneStoreIgnoresTheFirst) {
  ForkStore store;
  for (int generation = 0; generation < 3; ++generation) {
    const auto outcomes = run_ranks(3, [&](int rank, Store&) {
      MeshRank self(config_with({"tcp"}));
      all_to_all(self, self.join(store, rank, 3), rank, 99);
      return 0;
    });
    EXPECT_TRUE(all_ok(outcomes)) << "generation " << generation << ": " << to_string(outcomes);
  }
}

// A rank of a job that starts again, `late` ms after the others.
uint64_t meets(LocalStore& store, int rank, int size, int late = 0) {
  std::this_thread::sleep_for(milliseconds(late));
  MeshRank self(config_with({"tcp"}));
  const Roster roster = self.mesh.exchange(store, rank, size, Deadline::after(seconds(20)));
  EXPECT_EQ(roster.members[static_cast<size_t>(rank)].id, self.mesh.self().id);
  return roster.communicator;
}

TEST(Mesh, ARoundOfProcessesThatAreGoneIsNotJoined) {
  for (const bool complete : {true, false})
    for (const int last : {0, 2}) {
      LocalStore store;
      std::vector<std::thread> dead;
      for (int rank = 0; rank < (complete ? 3 : 2); ++rank)
        dead.emplace_back([&, rank] {
          MeshRank self(config_with({"tcp"}));
          try {
            self.mesh.exchange(store, rank, 3,
                               Deadline::after(milliseconds(complete ? 20'000 : 200)));
          } catch (const Exception& exception) {
            EXPECT_EQ(exception.code(), ErrorCode::kTimeout);
          }
        });
      for (auto& thread : dead) thread.join();
      std::array<uint64_t, 3> met{};
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < 3; ++rank)
        ranks.emplace_back([&, rank] {
          met[static_cast<size_t>(rank)] = meets(store, rank, 3, rank == last ? 300 : 0);
        });
      for (auto& thread : ranks) thread.join();
      EXPECT_EQ(met[0], met[1]);
      EXPECT_EQ(met[0], met[2]);
    }
}

TEST(Mesh, OneProcessMayMeetAgainThoughOthersAreLate) {
  LocalStore store;
  std::array<std::vector<uint64_t>, 2> met;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      MeshRank self(config_with({"tcp"}));
      for (int round = 0; round < 20; ++round)
        met[static_cast<size_t>(rank)].push_back(
            self.mesh.exchange(store, rank, 2, Deadline::after(seconds(20))).communicator);
    });
  for (auto& thread : ranks) thread.join();
  EXPECT_EQ(met[0], met[1]);
  EXPECT_EQ(std::set(met[0].begin(), met[0].end()).size(), 20u);
}

TEST(Mesh, MakesFourRequestsOfTheStoreAndRankZeroOneForEveryRank) {
  ForkStore store;
  constexpr uint64_t kSize = 6;
  const auto outcomes = run_ranks(kSize, [&](int rank, Store&) {
    MeshRank self(config_with({"tcp"}));
    self.mesh.exchange(store, rank, kSize, Deadline::after(seconds(20)));
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
  EXPECT_EQ(store.calls().sets, kSize + 2);
  EXPECT_EQ(store.calls().adds, kSize + 1);
  EXPECT_EQ(store.calls().gets, 3 * (kSize - 1));
}

TEST(Mesh, SettingsThatMustBeAlikeAreCompared) {
  const auto outcomes = run_ranks(3, [](int rank, Store& store) {
    MeshRank self(config_with({"tcp"}));
    std::map<std::string, std::string> settings{{"HCCL_LIKE_ALGO", "allreduce:ring"}};
    if (rank == 2)
      settings = {{"HCCL_LIKE_ALGO", "allreduce:ring"}, {"HCCL_LIKE_SLICE_BYTES", "7"}};
    try {
      self.mesh.exchange(store, rank, 3, Deadline::after(seconds(20)), std::nullopt, settings);
    } catch (const Exception& exception) {
      const std::string text = exception.what();
      const bool named =
          text.find("HCCL_LIKE_SLICE_BYTES is not set on rank 0 (") != std::string::npos &&
          text.find(" and 7 on rank 2 (") != std::string::npos;
      return exception.code() == ErrorCode::kMismatch && named ? 0 : 3;
    }
    return 4;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, ASecondGroupUsesTheLinksThatExist) {
  const auto outcomes = run_ranks(4, [](int rank, Store& store) {
    MeshRank self(config_with({"shm", "tcp"}));
    const auto first = self.join(store, rank, 4);
    all_to_all(self, first, rank, 10);
    const size_t descriptors = open_descriptors();
    const auto second = self.join(store, rank, 4);
    all_to_all(self, second, rank, 10);
    if (first != second) return 3;
    if (self.mesh.links().size() != 3) return 4;
    return open_descriptors() == descriptors ? 0 : 5;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, ReplacesAConnectionThatBrokeWhenTheProcessesMeetAgain) {
  const auto outcomes = run_ranks(3, [](int rank, Store& store) {
    MeshRank self(config_with({"tcp"}));
    const auto first = self.join(store, rank, 3);
    all_to_all(self, first, rank, 10);
    store.set("done" + std::to_string(rank), "yes");
    for (int peer = 0; peer < 3; ++peer)
      store.get("done" + std::to_string(peer), Deadline::after(seconds(20)));
    // The network breaks every connection there is.
    for (int fd = 3; fd < 256; ++fd) {
      sockaddr_storage peer;
      socklen_t length = sizeof peer;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0)
        ::shutdown(fd, SHUT_RDWR);
    }
    self.drive([&] {
      for (const Link* link : first)
        if (link != nullptr && link->failure() == nullptr) return false;
      return true;
    });
    const auto second = self.join(store, rank, 3);
    all_to_all(self, second, rank, 1000);
    return self.mesh.links().size() == 4 ? 0 : 3;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

// Two processes that take each other for local peers, wrongly (cloned virtual machines), or for
// which shared memory fails.
void expect_fall_back_to_tcp(const Config& config, const std::string& unix_name,
                             const std::string& reason) {
  const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
    MeshRank self(config);
    const Deadline deadline = Deadline::after(seconds(20));
    self.roster = self.mesh.exchange(store, rank, 2, deadline);
    auto members = self.roster.members;
    if (!unix_name.empty()) members[static_cast<size_t>(1 - rank)].unix_name = unix_name;
    const auto links = self.mesh.connect(members, rank, deadline, {});
    expect_all_transports(links, "tcp");
    all_to_all(self, links, rank, 4321);
    const bool connector =
        members[static_cast<size_t>(rank)].id > members[static_cast<size_t>(1 - rank)].id;
    const std::string text = self.mesh.describe(*links[static_cast<size_t>(1 - rank)]);
    if (connector && text.find(reason) == std::string::npos) throw std::runtime_error(text);
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, FallsBackToTcpWhenTheHostsOnlyLookTheSame) {
  expect_fall_back_to_tcp(config_with({"shm", "tcp"}), "hccl-like-nobody",
                          "(same host; shm: Connection refused");
}

TEST(Mesh, FallsBackToTcpWhenThereIsNoMemoryToShare) {
  // Memory for sharing counts as a file, and none may be larger than a page. The limit ends with
  // the ranks' parent.
  const pid_t parent = ::fork();
  if (parent == 0) {
    const rlimit page{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &page);
    std::signal(SIGXFSZ, SIG_IGN);
    expect_fall_back_to_tcp(config_with({"shm", "tcp"}), "", "(same host; shm: ");
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ::waitpid(parent, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Mesh, GroupsMayGrowAndOverlap) {
  const auto outcomes = run_ranks(4, [](int rank, Store& store) {
    MeshRank self(config_with({"shm", "tcp"}));
    // Pairs {0,1} {2,3} first, then everybody: only the missing links are made.
    PrefixedStore pair(store, "pair" + std::to_string(rank / 2) + "/");
    const auto two = self.join(pair, rank % 2, 2);
    all_to_all(self, two, rank % 2, 10);
    if (self.mesh.links().size() != 1) return 3;
    const auto four = self.join(store, rank, 4);
    all_to_all(self, four, rank, 10);
    if (self.mesh.links().size() != 3) return 4;
    return four[static_cast<size_t>(rank ^ 1)] == two[static_cast<size_t>((rank % 2) ^ 1)] ? 0 : 5;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, NamesTheRanksThatNeverCome) {
  const auto outcomes = run_ranks(4, [](int rank, Store& store) {
    if (rank == 1 || rank == 3) return 0;
    MeshRank self(config_with({"tcp"}));
    const auto begin = Deadline::Clock::now();
    try {
      self.mesh.exchange(store, rank, 4, Deadline::after(milliseconds(700)));
    } catch (const Exception& exception) {
      const auto took = Deadline::Clock::now() - begin;
      if (exception.code() != ErrorCode::kTimeout) return 3;
      if (took < milliseconds(700) || took > milliseconds(2000)) return 4;
      return std::string(exception.what()).find("ranks [1,3] of 4") != std::string::npos ? 0 : 5;
    }
    return 6;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(Mesh, NamesARankThatDiedWhileTheOthersConnect) {
  const auto outcomes = run_ranks(
      4,
      [](int rank, Store& store) {
        MeshRank self(config_with({"shm", "tcp"}));
        const Roster roster = self.mesh.exchange(store, rank, 4, Deadline::after(seconds(20)));
        if (rank == 2) ::kill(::getpid(), SIGKILL);
        const auto begin = Deadline::Clock::now();
        try {
          self.mesh.connect(roster.members, rank, Deadline::after(milliseconds(1500)), {});
        } catch (const Exception& exception) {
          if (Deadline::Clock::now() - begin > milliseconds(3000)) return 3;
          const std::string text = exception.what();
          if (exception.error().peer != 2) throw std::runtime_error(text);
          const std::string process = "process " + std::to_string(roster.members[2].pid);
          const bool named =
              text.find("rank 2 (") != std::string::npos && text.find(process) != std::string::npos;
          const bool alone = text.find("1 of 3 peers") != std::string::npos;
          if (!named || !alone) throw std::runtime_error(text);
          return 0;
        }
        return 4;
      },
      {.kill_on_failure = false});
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(outcomes[rank], rank == 2 ? (RankOutcome{-1, SIGKILL}) : (RankOutcome{0, 0}))
        << to_string(outcomes);
}

TEST(Mesh, SaysPerAddressWhatWentWrong) {
  MeshRank self(config_with({"tcp"}));
  ProcessRecord nobody = self.mesh.self();
  nobody.id = std::string(32, '0');  // lower than ours, so we connect
  nobody.addresses = {"127.0.0.1", "::1"};
  nobody.port = 1;
  try {
    self.mesh.connect({self.mesh.self(), nobody}, 0, Deadline::after(milliseconds(200)), {});
    FAIL();
  } catch (const Exception& exception) {
    const std::string text = exception.what();
    EXPECT_EQ(exception.code(), ErrorCode::kTimeout);
    EXPECT_NE(text.find("127.0.0.1:1: Connection refused"), std::string::npos) << text;
    EXPECT_NE(text.find("[::1]:1: Connection refused"), std::string::npos) << text;
  }
}

TEST(Mesh, CallsIdleWhileItWaits) {
  MeshRank self(config_with({"tcp"}));
  ProcessRecord nobody = self.mesh.self();
  nobody.id = std::string(32, 'f');
  int calls = 0;
  EXPECT_THROW(self.mesh.connect({self.mesh.self(), nobody}, 0, Deadline::after(milliseconds(100)),
                                 [&] { ++calls; }),
               Exception);
  EXPECT_GE(calls, 2);
}

TEST(Mesh, SaysWhenTwoRanksShareNoTransport) {
  MeshRank self(config_with({"tcp"}));
  ProcessRecord other = self.mesh.self();
  other.id = std::string(32, '0');
  other.port = 0;
  try {
    self.mesh.connect({self.mesh.self(), other}, 0, Deadline::after(seconds(5)), {});
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(exception.what()).find("no transport in common"), std::string::npos)
        << exception.what();
  }
}

TEST(Mesh, RefusesAGroupWithTheSameProcessTwice) {
  MeshRank self(config_with({"tcp"}));
  EXPECT_THROW(
      self.mesh.connect({self.mesh.self(), self.mesh.self()}, 0, Deadline::after(seconds(5)), {}),
      Exception);
  EXPECT_THROW(self.mesh.connect({}, 0, Deadline::after(seconds(5)), {}), Exception);
}

}  // namespace
}  // namespace hccl_like
