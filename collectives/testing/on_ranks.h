#pragma once
// Test support: ranks as threads of one process, each with its own Runtime.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/engine/runtime.h"
#include "transport/testing/local_store.h"

namespace hccl_like::testing {

struct Rank {
  int rank;
  int size;
  Runtime& runtime;
  Communicator& communicator;
  LocalStore* store;  // shared by all ranks
};

// Calls body(rank) on `size` ranks of one group; a failure or exception on any rank fails the test.
inline void on_ranks(int size, const Config& config, const std::function<void(Rank)>& body,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  LocalStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Runtime runtime(config);
        auto communicator = runtime.create(store, rank, size, "test", timeout,
                                           Deadline::after(std::chrono::seconds(20)));
        body({rank, size, runtime, *communicator, &store});
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

template <class T>
Region region(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Element `i` of rank `rank`'s input: small integers, so that every order of summation is exact.
inline float float_of(int rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 3) % 61);
}

inline std::vector<float> input(int rank, size_t count, size_t first = 0) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float_of(rank, first + i);
  return values;
}

inline std::vector<float> sum(int ranks, size_t count, size_t first = 0) {
  std::vector<float> values(count, 0.0f);
  for (int r = 0; r < ranks; ++r)
    for (size_t i = 0; i < count; ++i) values[i] += float_of(r, first + i);
  return values;
}

// A group of the same ranks that claim to be on several hosts.
inline std::shared_ptr<Communicator> on_hosts(Rank me, const std::vector<int>& hosts) {
  Communicator::Identity identity;
  identity.id = me.communicator.id() + 1;
  identity.rank = me.rank;
  identity.members = me.communicator.members();
  me.runtime.engine().with_mesh([&](Mesh& mesh, const std::function<void()>& idle) {
    identity.links =
        mesh.connect(identity.members, me.rank, Deadline::after(std::chrono::seconds(20)), idle);
  });
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    identity.members[rank].host = "host " + std::to_string(hosts[rank]);
  return Communicator::create(me.runtime.engine(), std::move(identity));
}

}  // namespace hccl_like::testing
