#include "collectives/registry/cost.h"

#include <algorithm>
#include <bit>

namespace hccl_like {

namespace {

uint64_t chunk_of(uint64_t bytes, uint64_t size) { return (bytes + size - 1) / size; }
uint64_t log2_floor(uint64_t size) { return static_cast<uint64_t>(std::bit_width(size)) - 1; }
uint64_t log2_ceil(uint64_t size) { return static_cast<uint64_t>(std::bit_width(size - 1)); }

void add(Load& load, uint64_t messages, uint64_t bytes, uint64_t reduced = 0) {
  load.messages += messages, load.bytes += bytes, load.reduced += reduced;
}

// Builds the cost of an algorithm in which one rank does all the work on the critical path.
class Sum {
 public:
  explicit Sum(const Crossings& x) : x_(x) {}

  // Every rank sends `messages` of `bytes` in all; `leaving` ranks of a host send to another host.
  Sum& exchange(uint64_t leaving, uint64_t messages, uint64_t bytes) {
    if (leaving == 0) {
      add(cost_.path, messages, bytes);
    } else {
      add(cost_.wire, leaving * messages, leaving * bytes);
      add(cost_.far_busiest, messages, bytes);
    }
    return *this;
  }
  // A round that waits for such partners.
  Sum& wait(uint64_t leaving, uint64_t rounds = 1) {
    (leaving == 0 ? cost_.rounds : cost_.far_rounds) += rounds;
    return *this;
  }
  // Every rank sends `bytes` to every peer, without waiting.
  Sum& everybody(uint64_t bytes) {
    const uint64_t near = x_.most - 1, far = x_.ranks - x_.least;
    add(cost_.path, near, near * bytes);
    if (x_.hosts > 1) {
      add(cost_.wire, x_.pairs, x_.pairs * bytes);
      add(cost_.far_busiest, far, far * bytes);
    }
    return wait(x_.hosts - 1);
  }
  // `rounds` rounds: every rank sends `bytes` to the next rank. A chunk meets near and far hops in
  // turn.
  Sum& neighbours(uint64_t rounds, uint64_t bytes) {
    const uint64_t far = (rounds * x_.hops + x_.ranks - 1) / x_.ranks, near = rounds - far;
    add(cost_.path, near, near * bytes);
    add(cost_.wire, far, far * bytes);
    if (far > 0) {
      add(cost_.far_busiest, rounds, rounds * bytes);
      add(wire_busiest_, rounds * x_.shift[0] - far, (rounds * x_.shift[0] - far) * bytes);
    }
    cost_.rounds += near, cost_.far_rounds += far;
    return *this;
  }
  Sum& reduce(uint64_t bytes) {
    add(cost_.path, 0, 0, bytes);
    return *this;
  }

  Cost done() const {
    Cost cost = cost_;
    cost.busiest = cost.path;
    cost.wire_busiest = cost.wire;
    add(cost.wire_busiest, wire_busiest_.messages, wire_busiest_.bytes);
    cost.resident = cost.rounds + cost.far_rounds;
    return cost;
  }

 private:
  const Crossings& x_;
  Cost cost_;
  Load wire_busiest_;  // traffic of the busiest host beyond that on the path
};

// Exchanges among a power of two of ranks; the other ranks lend their input before and receive the
// result after. Unless most ranks have a lender, no dependency chain includes both: a late rank
// finds the others' messages already there.
struct Fold {
  explicit Fold(const Crossings& x)
      : core(std::bit_floor(x.ranks)), extra(x.ranks - core), any(extra > 0), x_(x) {}

  // A lent rank stands for two, so partners are twice as far apart.
  uint64_t leaving(uint64_t k) const {
    return x_.exchange[std::min<uint64_t>(k + (2 * extra > core), log2_floor(x_.ranks))];
  }
  // A rank with a lender receives and sends one more message, never both at once.
  Cost done(const Sum& sum, uint64_t bytes) const {
    Cost cost = sum.done();
    if (!any) return cost;
    Load& load = x_.exchange[0] == 0 ? cost.busiest : cost.wire_busiest;
    load.messages -= 1, load.bytes -= bytes;
    return cost;
  }

  const uint64_t core, extra;
  const bool any;

 private:
  const Crossings& x_;
};

// A tree whose edges span powers of two. The root sends to all its children without waiting. No
// path has more hops than the bit count of any number below n.
Sum binomial(const Crossings& x, uint64_t bytes) {
  Sum sum(x);
  const uint64_t levels = log2_ceil(x.ranks), hops = log2_floor(x.ranks);
  for (uint64_t k = levels; k-- > 0;) {
    // At this level one rank in 2^(k+1) sends.
    const uint64_t far = x.exchange[k];
    sum.exchange(far == 0 ? 0 : std::max<uint64_t>(1, far >> (k + 1)), 1, bytes);
    if (levels - k <= hops) sum.wait(far);
  }
  return sum;
}

Cost chain(const Crossings& x, uint64_t bytes, uint64_t reduced) {
  const uint64_t hops = x.ranks - 1, far = std::min(x.hops, hops), near = hops - far;
  Cost cost{.rounds = near,
            .far_rounds = far,
            .path = {near, near * bytes, hops * reduced},
            .wire = {far, far * bytes, 0},
            .busiest = {near > 0, (near > 0) * bytes, reduced},
            .resident = 1};
  if (far > 0) {
    cost.far_busiest = {1, bytes, 0};
    cost.wire_busiest = {x.shift[0], x.shift[0] * bytes, 0};
  }
  return cost;
}

}  // namespace

uint64_t estimate_ps(const Cost& slice, uint64_t slices, uint64_t window,
                     const Topology& topology) {
  const LinkCost &near = topology.local, &far = topology.remote;
  auto port = [](const Load& load, const LinkCost& link) {
    return load.messages * link.gap_ps + byte_time_ps(load.bytes, link.ps_per_kib);
  };
  auto core = [&](const Load& load) {
    return byte_time_ps(load.reduced, topology.reduce_ps_per_kib);
  };
  const uint64_t waiting = slice.rounds * near.latency_ps + slice.far_rounds * far.latency_ps;
  const uint64_t moving = port(slice.path, near) + port(slice.wire, far) + core(slice.path);
  // The slower of the busiest rank and the busiest host's uplink.
  const uint64_t on_rank =
      port(slice.busiest, near) + port(slice.far_busiest, far) + core(slice.busiest);
  const uint64_t work = std::max(on_rank, port(slice.wire_busiest, far));
  const uint64_t one = std::max(waiting + moving, work);
  if (slices == 1) return one;

  // A rank runs `window` slices at once; each stays for part of the path.
  const uint64_t rounds = slice.rounds + slice.far_rounds;
  const uint64_t stay = rounds == 0 ? one : one / rounds * slice.resident;
  const uint64_t waves = one + (slices > window ? (slices - window) * stay / window : 0);
  // Or the busiest port limits: it works without a pause from the arrival of the first slice to the
  // departure of the last. Work for other slices hides a rank's own waiting.
  const uint64_t latency = slice.far_rounds > 0 ? far.latency_ps : near.latency_ps;
  const uint64_t hidden = rounds == 0 ? 0 : waiting / rounds * slice.resident;
  const uint64_t elsewhere = waiting - hidden + (moving > work ? moving - work : 0);
  return std::max(waves, elsewhere + (slice.resident > 0) * latency + slices * work);
}

Cost cost_allreduce_one_shot(const Crossings& x, uint64_t bytes) {
  return Sum(x).everybody(bytes).reduce((x.ranks - 1) * bytes).done();
}

Cost cost_allreduce_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  return Sum(x).everybody(chunk).everybody(chunk).reduce((x.ranks - 1) * chunk).done();
}

Cost cost_allreduce_recursive_doubling(const Crossings& x, uint64_t bytes) {
  const Fold fold(x);
  const uint64_t exchanges = log2_floor(x.ranks);
  Sum sum(x);
  for (uint64_t k = 0; k < exchanges; ++k)
    sum.exchange(fold.leaving(k), 1, bytes).wait(fold.leaving(k));
  if (fold.any) {
    sum.exchange(x.exchange[0], 2, 2 * bytes);
    sum.wait(x.exchange[0], 1 + (2 * fold.extra > fold.core));
  }
  // After a single exchange the sum must still move to the output.
  sum.reduce((exchanges + fold.any + (exchanges == 1)) * bytes);
  return fold.done(sum, bytes);
}

Cost cost_allreduce_rabenseifner(const Crossings& x, uint64_t bytes) {
  const Fold fold(x);
  Sum sum(x);
  uint64_t halves = 0;  // 1/2 + 1/4 + ... of the payload
  for (uint64_t k = 0, half = fold.core / 2; half > 0; ++k, half /= 2) {
    const uint64_t part = bytes / fold.core * half + bytes % fold.core * half / fold.core;
    sum.exchange(fold.leaving(k), 2, 2 * part).wait(fold.leaving(k), 2);
    halves += part;
  }
  if (fold.any) sum.exchange(x.exchange[0], 2, 2 * bytes).wait(x.exchange[0], 2);
  sum.reduce(halves + fold.any * bytes);
  return fold.done(sum, bytes);
}

Cost cost_allreduce_ring(const Crossings& x, uint64_t bytes) {
  const uint64_t others = x.ranks - 1, chunk = chunk_of(bytes, x.ranks);
  return Sum(x).neighbours(2 * others, chunk).reduce(others * chunk).done();
}

Cost cost_reduce_scatter_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  return Sum(x).everybody(chunk).reduce((x.ranks - 1) * chunk).done();
}

Cost cost_reduce_scatter_recursive_halving(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  Sum sum(x);
  for (uint64_t k = log2_ceil(x.ranks); k-- > 0;)
    sum.exchange(x.exchange[k], 1, chunk << k).wait(x.exchange[k]);
  return sum.reduce((x.ranks - 1) * chunk).done();
}

Cost cost_reduce_scatter_ring(const Crossings& x, uint64_t bytes) {
  const uint64_t others = x.ranks - 1, chunk = chunk_of(bytes, x.ranks);
  return Sum(x).neighbours(others, chunk).reduce(others * chunk).done();
}

Cost cost_allgather_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  return Sum(x).everybody(chunk).reduce(chunk).done();
}

Cost cost_allgather_bruck(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  Sum sum(x);
  for (uint64_t k = 0, have = 1; have < x.ranks; ++k, have *= 2) {
    // After the first round, some ranks' chunks wrap around the end: two messages.
    sum.exchange(x.shift[k], 1 + (k > 0), std::min(have, x.ranks - have) * chunk).wait(x.shift[k]);
  }
  return sum.reduce(chunk).done();
}

Cost cost_allgather_ring(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  return Sum(x).neighbours(x.ranks - 1, chunk).reduce(chunk).done();
}

Cost cost_broadcast_binomial(const Crossings& x, uint64_t bytes) {
  return binomial(x, bytes).done();
}

Cost cost_broadcast_scatter_allgather(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  Sum sum(x);
  for (uint64_t k = log2_ceil(x.ranks), left = x.ranks; k-- > 0;) {
    const uint64_t given = left > (uint64_t{1} << k) ? left - (uint64_t{1} << k) : 0;
    sum.exchange(std::min<uint64_t>(1, x.exchange[k]), 1, given * chunk);
    left -= given;
  }
  Cost cost = sum.neighbours(x.ranks - 1, chunk).done();
  // No rank waits for a later rank of the ring: slices pipeline closely, as in a chain.
  cost.resident = 1;
  return cost;
}

Cost cost_broadcast_chain(const Crossings& x, uint64_t bytes) { return chain(x, bytes, 0); }

Cost cost_reduce_binomial(const Crossings& x, uint64_t bytes) {
  return binomial(x, bytes).reduce(log2_ceil(x.ranks) * bytes).done();
}

Cost cost_reduce_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks), far = x.ranks - x.least;
  Sum sum(x);
  sum.everybody(chunk).exchange(0, x.most - 1, (x.most - 1) * chunk);
  if (x.hosts > 1) sum.exchange(1, far, far * chunk);
  return sum.wait(x.hosts - 1).reduce((x.ranks - 1) * chunk).done();
}

Cost cost_reduce_chain(const Crossings& x, uint64_t bytes) { return chain(x, bytes, bytes); }

Cost cost_gather_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks);
  Cost cost = cost_scatter_direct(x, bytes);
  cost.path.reduced = cost.busiest.reduced = chunk;
  return cost;
}

Cost cost_scatter_direct(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks), far = x.ranks - x.least;
  Sum sum(x);
  sum.exchange(0, x.most - 1, (x.most - 1) * chunk);
  if (x.hosts > 1) sum.exchange(1, far, far * chunk);
  return sum.wait(x.hosts - 1).done();
}

Cost cost_alltoall_direct(const Crossings& x, uint64_t bytes) {
  return cost_allgather_direct(x, bytes);
}

Cost cost_alltoall_pairwise(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = chunk_of(bytes, x.ranks), far = x.hosts > 1 ? x.ranks - x.least : 0;
  Sum sum(x);
  sum.everybody(chunk).reduce(chunk);
  Cost cost = sum.done();
  cost.rounds = x.ranks - 1 - far, cost.far_rounds = far;
  cost.resident = x.ranks - 1;
  return cost;
}

Cost cost_alltoall_bruck(const Crossings& x, uint64_t bytes) {
  const uint64_t rounds = log2_ceil(x.ranks), half = x.ranks / 2 * chunk_of(bytes, x.ranks);
  Sum sum(x);
  for (uint64_t k = 0; k < rounds; ++k) sum.exchange(x.shift[k], 1, half).wait(x.shift[k]);
  return sum.reduce(rounds * half + bytes).done();
}

Cost cost_barrier_dissemination(const Crossings& x, uint64_t) {
  Sum sum(x);
  for (uint64_t k = 0; k < log2_ceil(x.ranks); ++k) sum.exchange(x.shift[k], 1, 0).wait(x.shift[k]);
  return sum.done();
}

Cost cost_message(const Crossings& x, uint64_t bytes) {
  return Sum(x).exchange(x.hosts - 1, 1, bytes).wait(x.hosts - 1).done();
}

}  // namespace hccl_like
