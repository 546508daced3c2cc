// How meshes end, and what processes leave behind. The rest of the mesh is in mesh_test.cc.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transport/mesh/mesh.h"
#include "transport/testing/descriptors.h"
#include "transport/testing/local_store.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::vector<std::string> kBothTransports{"shm", "tcp"};

TEST(MeshEndings, EndsInOrderWithoutLosingWhatThePeerHasNotRead) {
  // Rank 0 sends a message that it has handed over and leaves at once; rank 1 reads it only after
  // rank 0 is gone.
  for (const auto& transport : kBothTransports) {
    const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
      constexpr size_t kCount = 2'000;  // fits the eager limit and every buffer
      std::vector<uint32_t> data(kCount);
      uint32_t pending = 1;
      MeshRank self(config_with({transport}));
      const auto links = self.join(store, rank, 2);
      const Tag tag{.communicator = self.roster.communicator, .sequence = 5};
      Send send;
      Recv receive;
      send.tag = receive.tag = tag;
      send.pending = receive.pending = &pending;
      send.bytes = receive.bytes = kCount * sizeof(uint32_t);
      if (rank == 0) {
        data = payload(0, 1, kCount);
        send.from.add(reinterpret_cast<std::byte*>(data.data()), send.bytes);
        links[1]->post(send);
        self.drive([&] { return pending == 0; });
        store.set("pid", std::to_string(::getpid()));
        return 0;
      }
      const pid_t pid =
          static_cast<pid_t>(std::stol(store.get("pid", Deadline::after(seconds(20)))));
      // The parent reaps it only when it is gone, sockets and all.
      while (::kill(pid, 0) == 0) ::usleep(1000);
      receive.into.add(reinterpret_cast<std::byte*>(data.data()), receive.bytes);
      links[0]->post(receive);
      const Deadline deadline = Deadline::after(seconds(20));
      self.drive([&] {
        if (deadline.expired()) throw std::runtime_error("the message was lost");
        return pending == 0;
      });
      return data == payload(0, 1, kCount) ? 0 : 3;
    });
    EXPECT_TRUE(all_ok(outcomes)) << transport << ": " << to_string(outcomes);
  }
}

TEST(MeshEndings, EndsInTimeThoughAPeerIsStopped) {
  for (const auto& transport : kBothTransports) {
    const auto outcomes = run_ranks(
        2,
        [&](int rank, Store& store) {
          auto self = std::make_unique<MeshRank>(config_with({transport}));
          const auto links = self->join(store, rank, 2);
          if (rank == 1) {
            store.set("pid", std::to_string(::getpid()));
            ::raise(SIGSTOP);
            return 0;
          }
          const auto pid =
              static_cast<pid_t>(std::stol(store.get("pid", Deadline::after(seconds(20)))));
          // Small messages are not held back until the peer asks for them: these fill every buffer
          // on the way.
          std::vector<std::byte> data(4096);
          std::vector<Send> sends(10'000);
          uint32_t pending = static_cast<uint32_t>(sends.size());
          for (size_t i = 0; i < sends.size(); ++i) {
            sends[i].tag = {.communicator = self->roster.communicator,
                            .sequence = static_cast<uint32_t>(i)};
            sends[i].pending = &pending;
            sends[i].bytes = data.size();
            sends[i].from.add(data.data(), data.size());
            links[1]->post(sends[i]);
          }
          for (int idle = 0; idle < 1000; ++idle)
            if (links[1]->progress()) idle = 0;
          if (pending == 0) return 3;  // nothing was left to wait for
          links[1]->cancel(self->roster.communicator);
          const auto begin = Deadline::Clock::now();
          self.reset();
          const auto took = Deadline::Clock::now() - begin;
          ::kill(pid, SIGKILL);
          return took > milliseconds(900) && took < milliseconds(2500) ? 0 : 4;
        },
        {.timeout = seconds(20), .kill_on_failure = false});
    EXPECT_TRUE(outcomes[0].ok()) << transport << ": " << to_string(outcomes);
  }
}

TEST(MeshEndings, EndsAtOnceWhenAPeerIsDead) {
  for (const auto& transport : kBothTransports) {
    const auto outcomes =
        run_ranks(2,
                  [&](int rank, Store& store) {
                    auto self = std::make_unique<MeshRank>(config_with({transport}));
                    const auto links = self->join(store, rank, 2);
                    store.set("joined" + std::to_string(rank), "yes");
                    store.get("joined" + std::to_string(1 - rank), Deadline::after(seconds(20)));
                    if (rank == 1) ::kill(::getpid(), SIGKILL);
                    self->drive([&] { return links[1]->failure() != nullptr; });
                    if (links[1]->failure()->code != ErrorCode::kPeerLost) return 3;
                    const auto begin = Deadline::Clock::now();
                    self.reset();
                    return Deadline::Clock::now() - begin < milliseconds(300) ? 0 : 4;
                  },
                  {.timeout = seconds(20), .kill_on_failure = false});
    EXPECT_TRUE(outcomes[0].ok()) << transport << ": " << to_string(outcomes);
  }
}

TEST(MeshEndings, LeavesNothingBehind) {
  LocalStore store;
  const auto round = [&](uint64_t number) {
    PrefixedStore own(store, std::to_string(number) + "/");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        MeshRank self(config_with({"shm", "tcp"}));
        all_to_all(self, self.join(own, rank, 3), rank, 1000);
      });
    for (auto& thread : threads) thread.join();
  };
  round(0);
  const size_t before = open_descriptors();
  round(1);
  round(2);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(MeshEndings, AForkedChildDoesNotDisturbItsParentsLinks) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) {
    auto self = std::make_unique<MeshRank>(config_with({"shm", "tcp"}));
    const auto links = self->join(store, rank, 2);
    const pid_t child = ::fork();
    if (child == 0) {
      self.reset();  // a data loader's worker that cleans up
      ::_exit(0);
    }
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);
    all_to_all(*self, links, rank, 54'321);
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

}  // namespace
}  // namespace hccl_like
