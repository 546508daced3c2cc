#pragma once
// For tests of the mesh: a rank with a mesh of its own, and what it does with its links.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

inline Config config_with(std::vector<std::string> transports) {
  Config config;
  config.transports = std::move(transports);
  return config;
}

// One rank: a poller, a mesh, and what a driver does with them.
struct MeshRank {
  explicit MeshRank(const Config& config) : mesh(config, poller) {}

  std::vector<Link*> join(Store& store, int rank, int size,
                          std::chrono::seconds timeout = std::chrono::seconds(20)) {
    const Deadline deadline = Deadline::after(timeout);
    roster = mesh.exchange(store, rank, size, deadline);
    return mesh.connect(roster.members, rank, deadline, {});
  }
  // Without connecting anybody.
  std::vector<Link*> meet(Store& store, int rank, int size) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    roster = mesh.exchange(store, rank, size, deadline);
    return mesh.introduce(roster.members, rank, deadline, {});
  }
  size_t connected() const {
    return static_cast<size_t>(
        std::ranges::count_if(mesh.links(), [](const auto& link) { return link->connected(); }));
  }
  // Throws after 20 s, and says how far the links are; what is posted must then outlive the mesh.
  void drive(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!done()) {
      if (deadline.expired()) {
        std::string text = "it takes too long";
        for (const auto& link : mesh.links()) text += "; " + mesh.describe(*link);
        throw_error(ErrorCode::kTimeout, text);
      }
      poller.poll();
      mesh.poll();
      bool moved = false;
      for (const auto& link : mesh.links()) moved |= link->progress();
      if (!moved) poller.sleep(Deadline::after(std::chrono::milliseconds(1)));
    }
  }

  Poller poller;
  Mesh mesh;
  Roster roster;
};

inline std::vector<uint32_t> payload(int from, int to, size_t count) {
  std::vector<uint32_t> data(count);
  std::iota(data.begin(), data.end(), static_cast<uint32_t>(from * 1'000'003 + to * 10'007));
  return data;
}

// Everybody sends everybody `count` numbers and checks what comes. Throws what is wrong.
inline void all_to_all(MeshRank& self, const std::vector<Link*>& links, int rank, size_t count,
                       uint32_t sequence = 1) {
  const auto size = static_cast<int>(links.size());
  std::vector<std::vector<uint32_t>> out(links.size()), in(links.size());
  std::vector<Send> sends(links.size());
  std::vector<Recv> receives(links.size());
  std::vector<uint32_t> pending(links.size());
  for (int peer = 0; peer < size; ++peer) {
    const auto i = static_cast<size_t>(peer);
    if (peer == rank) continue;
    out[i] = payload(rank, peer, count);
    in[i].resize(count);
    const Tag tag{.communicator = self.roster.communicator, .sequence = sequence};
    sends[i].tag = receives[i].tag = tag;
    sends[i].fingerprint = receives[i].fingerprint = 77;
    sends[i].bytes = receives[i].bytes = count * sizeof(uint32_t);
    sends[i].pending = receives[i].pending = &pending[i];
    sends[i].from.add(reinterpret_cast<std::byte*>(out[i].data()), sends[i].bytes);
    receives[i].into.add(reinterpret_cast<std::byte*>(in[i].data()), receives[i].bytes);
    pending[i] = 2;
    links[i]->post(receives[i]);
    links[i]->post(sends[i]);
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  self.drive([&] {
    // A peer that has everything may leave while others still wait for each other.
    uint32_t missing = 0;
    for (size_t i = 0; i < links.size(); ++i) {
      if (pending[i] != 0 && links[i]->failure() != nullptr) throw Exception(*links[i]->failure());
      missing += pending[i];
    }
    if (deadline.expired())
      throw_error(ErrorCode::kTimeout, std::to_string(missing) + " messages are missing");
    return missing == 0;
  });
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank && in[static_cast<size_t>(peer)] != payload(peer, rank, count))
      throw_error(ErrorCode::kMismatch, "wrong numbers from rank " + std::to_string(peer));
}

}  // namespace hccl_like
