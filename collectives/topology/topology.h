#pragma once
// Input of the cost model: layout of ranks on hosts and unit costs. All in integer picoseconds, so
// that every rank computes the same numbers on any processor and compiler.
#include <cstdint>

#include "collectives/topology/hosts.h"

namespace hccl_like {

// LogGP (Alexandrov et al. 1995): a message of b bytes takes `latency`, and occupies the sender's
// and the receiver's port for `gap` + b * `ps_per_kib` / 1024.
struct LinkCost {
  uint64_t latency_ps = 0;
  uint64_t gap_ps = 0;
  uint64_t ps_per_kib = 0;

  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

// Picoseconds per KiB at a rate in GB/s.
constexpr uint64_t ps_per_kib(double gigabytes_per_second) {
  return static_cast<uint64_t>(1'024'000.0 / gigabytes_per_second);
}

// Does not overflow for any payload.
constexpr uint64_t byte_time_ps(uint64_t bytes, uint64_t ps_per_kib) {
  return bytes / 1024 * ps_per_kib + bytes % 1024 * ps_per_kib / 1024;
}

// Measured on two cores: shared memory through a ring buffer, and TCP over loopback.
inline constexpr LinkCost kSharedMemory{300'000, 100'000, ps_per_kib(8)};
inline constexpr LinkCost kTcpLoopback{8'000'000, 2'000'000, ps_per_kib(2.5)};
// TCP between containers or network namespaces of one machine: nothing is in flight. The sender's
// thread runs both stacks, so a message costs processor time and no waiting.
inline constexpr LinkCost kTcpOneMachine{1'500'000, 5'500'000, ps_per_kib(3.3)};

struct Topology {
  Hosts hosts = 1;
  int cores_per_host = 0;  // 0: as many as ranks
  int cores_of_all = 0;    // of the machine that runs all hosts; 0: one machine per host
  LinkCost local = kSharedMemory;
  LinkCost remote = kTcpLoopback;
  uint64_t reduce_ps_per_kib = ps_per_kib(20);  // for one operand of a sum; copies cost the same
  // Memory touches of a sum over received data, relative to a sum on arrival.
  uint64_t gathered_passes = 1;
  uint64_t switch_ps = 1'300'000;  // to switch a core to the next waiting rank

  // One rank per host, all hosts on one machine. Measured: docs/decisions/0011-tcp.md.
  static Topology one_machine(int ranks, int cores) {
    Topology all = one_rank_a_host(ranks);
    all.cores_of_all = cores;
    all.remote = kTcpOneMachine;
    all.gathered_passes = 3;
    return all;
  }
  static Topology one_host(int ranks, int cores = 0) {
    return {.hosts = ranks, .cores_per_host = cores};
  }
  static Topology one_rank_a_host(int ranks) { return {.hosts = Hosts::one_rank_each(ranks)}; }

  // Several slices overlap transfers with sums. Between hosts of one machine nothing is in flight:
  // more slices would only overflow the caches.
  uint32_t slices_at_once(uint32_t most) const { return cores_of_all > 0 || most == 0 ? 1 : most; }

  int size() const { return hosts.size(); }
  int host(int rank) const { return hosts.host(rank); }
  const LinkCost& link(int from, int to) const { return host(from) == host(to) ? local : remote; }

  // Adds the cost of shared cores to the links. If ranks outnumber cores, every message waits for
  // its receiver's turn, and copies and sums share the cores. On one machine, so do messages.
  Topology with_sharing() const {
    const bool one_machine = cores_of_all > 0;
    const int sharers = one_machine ? size() : hosts.most();
    const int shared_cores = one_machine ? cores_of_all : cores_per_host;
    if (shared_cores <= 0 || sharers <= shared_cores) return *this;
    const auto ranks = static_cast<uint64_t>(sharers);
    const auto cores = static_cast<uint64_t>(shared_cores);
    Topology shared = *this;
    shared.cores_per_host = shared.cores_of_all = 0;
    const uint64_t turns = (ranks + cores - 1) / cores - 1;
    shared.local.latency_ps += turns * switch_ps;
    shared.remote.latency_ps += turns * switch_ps;
    shared.local.ps_per_kib = local.ps_per_kib * ranks / cores;
    shared.reduce_ps_per_kib = reduce_ps_per_kib * ranks / cores;
    if (one_machine) {
      shared.remote.gap_ps = remote.gap_ps * ranks / cores;
      shared.remote.ps_per_kib = remote.ps_per_kib * ranks / cores;
    }
    return shared;
  }

  friend bool operator==(const Topology&, const Topology&) = default;
};

}  // namespace hccl_like
