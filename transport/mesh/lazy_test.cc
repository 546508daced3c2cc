// Peers that are introduced and connected when they are wanted. The rest of the mesh is in
// mesh_test.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "transport/mesh/mesh.h"
#include "transport/same_host/local_peer.h"
#include "transport/testing/local_store.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank that has ended is nobody's absent peer: where these are counted, nobody leaves before all
// have counted.
void leave_together(Store& store, int rank, int size) {
  store.set("done" + std::to_string(rank), "");
  for (int peer = 0; peer < size; ++peer)
    store.get("done" + std::to_string(peer), Deadline::after(seconds(20)));
}

// One number each way; the two ends of a pair agree on `sequence`.
struct Exchange {
  Exchange(Link& link, uint64_t communicator, uint32_t mine, uint32_t sequence = 1) : number(mine) {
    send.tag = recv.tag = {.communicator = communicator, .sequence = sequence};
    send.bytes = recv.bytes = sizeof number;
    send.pending = recv.pending = &pending;
    send.from.add(reinterpret_cast<std::byte*>(&number), sizeof number);
    recv.into.add(reinterpret_cast<std::byte*>(&got), sizeof got);
    link.post(recv);
    link.post(send);
  }
  uint32_t number, got = 0, pending = 2;
  Send send;
  Recv recv;
};

Config impatient(const std::string& transport) {
  Config config = config_with({transport});
  config.connect_timeout = milliseconds(50);
  return config;
}

// As rank 0, to a rank 1 that was never there.
Link& link_to_nobody(MeshRank& self) {
  ProcessRecord nobody = self.mesh.self();
  nobody.id = std::string(32, 'f');
  nobody.commons.reset();
  nobody.unix_name = "hccl-like-nobody";
  nobody.port = nobody.port == 0 ? 0 : 1;
  const auto links =
      self.mesh.introduce({self.mesh.self(), nobody}, 0, Deadline::after(seconds(5)), {});
  return *links[1];
}

class LazyMesh : public testing::TestWithParam<std::string> {};

TEST_P(LazyMesh, ConnectsThoseWhoPost) {
  const auto outcomes = run_ranks(4, [](int rank, Store& store) {
    MeshRank self(config_with({GetParam()}));
    const auto links = self.meet(store, rank, 4);
    // The one who wants this rank may have come already.
    if (self.connected() > 1 || !self.mesh.has_absent()) return 1;
    const int peer = rank ^ 1;
    Exchange exchange(*links[static_cast<size_t>(peer)], self.roster.communicator,
                      static_cast<uint32_t>(rank + 10));
    self.drive([&] { return exchange.pending == 0; });
    if (exchange.got != static_cast<uint32_t>(peer + 10)) return 2;
    const size_t connected = self.connected();
    leave_together(store, rank, 4);
    return connected == 1 ? 0 : 3;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST_P(LazyMesh, ConnectsOnceWhereBothEndsBeginAtTheSameTime) {
  const auto outcomes = run_ranks(6, [](int rank, Store& store) {
    MeshRank self(config_with({GetParam()}));
    const auto links = self.meet(store, rank, 6);
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (Link* link : links)
      if (link != nullptr)
        exchanges.push_back(std::make_unique<Exchange>(*link, self.roster.communicator,
                                                       static_cast<uint32_t>(rank)));
    self.drive([&] {
      return std::ranges::all_of(exchanges, [](const auto& one) { return one->pending == 0; });
    });
    return self.connected() == 5 && self.mesh.links().size() == 5 ? 0 : 3;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST_P(LazyMesh, LetsAPeerInThatNobodyHereWants) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    MeshRank self(config_with({GetParam()}));
    const auto links = self.meet(store, rank, 2);
    Link& link = *links[static_cast<size_t>(1 - rank)];
    if (rank == 0) {
      link.want_wire();
      if (!self.mesh.is_restless()) return 1;
    }
    self.drive([&] { return link.connected(); });
    Exchange exchange(link, self.roster.communicator, 5);
    self.drive([&] { return exchange.pending == 0; });
    return link.failure() == nullptr ? 0 : 2;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

// Rank 1 knows rank 0 before rank 0 knows rank 1, which may never happen.
TEST_P(LazyMesh, HoldsAPeerAsideUntilItIsIntroduced) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    constexpr uint64_t kGroup = 77;
    MeshRank self(config_with({GetParam()}));
    const auto key = [](int who) { return "record" + std::to_string(who); };
    store.set(key(rank), self.mesh.self().serialize());
    const auto introduce_both = [&] {
      std::vector<ProcessRecord> members;
      for (int member = 0; member < 2; ++member)
        members.push_back(
            ProcessRecord::parse(store.get(key(member), Deadline::after(seconds(20)))));
      return self.mesh.introduce(members, rank, Deadline::after(seconds(20)), {})[1 - rank];
    };
    if (rank == 1) {
      Link& link = *introduce_both();
      link.want_wire();
      Exchange exchange(link, kGroup, 11);
      // Shared memory takes both ends to be set up, a socket the greeting only.
      if (link.transport() == "tcp") self.drive([&] { return link.connected(); });
      store.set("knocks", "");
      self.drive([&] { return exchange.pending == 0; });
      leave_together(store, rank, 2);
      return exchange.got == 10 ? 0 : 1;
    }
    self.drive([&] {
      try {
        store.get("knocks", Deadline::after(milliseconds(1)));
        return true;
      } catch (const Exception&) {
        return false;  // not yet
      }
    });
    if (!self.mesh.links().empty()) return 2;
    Exchange exchange(*introduce_both(), kGroup, 10);
    self.drive([&] { return exchange.pending == 0; });
    leave_together(store, rank, 2);
    return exchange.got == 11 && self.mesh.links().size() == 1 ? 0 : 3;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST_P(LazyMesh, FailsTheLinkToAPeerThatHasEnded) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    MeshRank self(config_with({GetParam()}));
    const auto links = self.meet(store, rank, 2);
    if (rank == 1) {
      store.get("met", Deadline::after(seconds(20)));
      _exit(0);
    }
    store.set("met", "");
    Link& link = *links[1];
    Exchange exchange(link, self.roster.communicator, 5);
    const auto begin = Deadline::Clock::now();
    self.drive([&] {
      link.look_for_end();
      return link.failure() != nullptr;
    });
    if (Deadline::Clock::now() - begin > seconds(3)) return 1;
    return link.failure()->code == ErrorCode::kPeerLost ? 0 : 2;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST_P(LazyMesh, SaysWhatWasTriedWhenItsTimeIsOver) {
  MeshRank self(impatient(GetParam()));
  Link& link = link_to_nobody(self);
  link.want_wire();
  self.drive([&] { return link.failure() != nullptr; });
  EXPECT_NE(link.failure()->message.find("rank 0 ("), std::string::npos);
  EXPECT_NE(link.failure()->message.find("timed out connecting to rank 1 ("), std::string::npos)
      << link.failure()->message;
}

INSTANTIATE_TEST_SUITE_P(Over, LazyMesh, testing::Values("shm", "tcp"),
                         [](const auto& test) { return test.param; });

TEST(LocalPeers, TellEachOtherWithoutAConnectionWhatTheyGaveUp) {
  const auto outcomes = run_ranks(3, [](int rank, Store& store) {
    MeshRank self(config_with({"shm"}));
    const auto links = self.meet(store, rank, 3);
    if (rank == 1) {
      for (const uint64_t communicator : {7u, 8u})
        for (Link* link : links)
          if (link != nullptr)
            link->send_abort(communicator, "enough of " + std::to_string(communicator));
      store.set("told", "");
    }
    if (rank != 1) {
      store.get("told", Deadline::after(seconds(20)));
      Link& link = *links[1];
      if (!link.has_news()) return 1;
      for (const uint64_t communicator : {7u, 8u}) {
        const auto notice = link.take_abort();
        if (!notice || notice->communicator != communicator ||
            notice->reason != "enough of " + std::to_string(communicator))
          return 2;
      }
      if (link.take_abort() || link.has_news()) return 3;
    }
    leave_together(store, rank, 3);
    return self.connected() == 0 ? 0 : 4;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(LocalPeers, WakeEachOther) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    MeshRank self(config_with({"shm"}));
    const auto links = self.meet(store, rank, 2);
    if (rank == 0) {
      self.mesh.set_asleep(true);
      store.set("asleep", "");
      const auto begin = Deadline::Clock::now();
      self.poller.sleep(Deadline::after(seconds(20)));
      self.mesh.set_asleep(false);
      store.set("awake", "");
      return Deadline::Clock::now() - begin < milliseconds(90) ? 0 : 1;
    }
    store.get("asleep", Deadline::after(seconds(20)));
    links[0]->nudge();
    store.get("awake", Deadline::after(seconds(20)));
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(LocalPeers, WhoseMemoryCannotBeSeenAreConnectedAtOnce) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    MeshRank self(config_with({"shm"}));
    const Deadline deadline = Deadline::after(seconds(20));
    self.roster = self.mesh.exchange(store, rank, 2, deadline);
    // As from another PID namespace.
    for (ProcessRecord& member : self.roster.members) member.pid = 1;
    const auto links = self.mesh.introduce(self.roster.members, rank, deadline, {});
    return self.connected() == 1 && links[static_cast<size_t>(1 - rank)]->commons() != nullptr ? 0
                                                                                               : 1;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

}  // namespace
}  // namespace hccl_like
