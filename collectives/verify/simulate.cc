#include "collectives/verify/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "collectives/schedule/layout.h"

namespace hccl_like {

namespace {

// An exclusive resource.
struct Resource {
  uint64_t free_ps = 0;
};

// Occupies both at the same time.
uint64_t occupy(uint64_t from, uint64_t duration, Resource& a, Resource& b) {
  const uint64_t start = std::max({from, a.free_ps, b.free_ps});
  a.free_ps = b.free_ps = start + duration;
  return start;
}

struct Event {
  enum class Kind : uint8_t {
    kArrives,  // a message reaches its receiver
    kLands,    // it has passed the receiver's port
    kDone,     // a step is done
  };
  uint64_t at_ps;
  uint64_t sequence;  // breaks ties in order of creation
  uint32_t rank;
  uint32_t slice;
  uint32_t step;  // of the rank
  Kind kind;

  friend bool operator>(const Event& a, const Event& b) {
    return a.at_ps != b.at_ps ? a.at_ps > b.at_ps : a.sequence > b.sequence;
  }
};

class Simulator {
 public:
  Simulator(const Job& job, const Topology& topology, const SimulateOptions& options)
      : job_(job),
        topology_(topology.with_sharing()),
        options_(options),
        matching_(match(job)),
        ranks_(job.ranks.size()),
        hosts_out_(static_cast<size_t>(topology.hosts.count())),
        hosts_in_(static_cast<size_t>(topology.hosts.count())),
        slices_(job.ranks.size() * options.slices),
        receives_(matching_.partner.size() * options.slices) {}

  Simulation run() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (uint32_t slice = 0; slice < std::min(options_.slices, options_.window); ++slice) {
        start_rounds(rank, slice);
      }
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ps_ = event.at_ps;
      switch (event.kind) {
        case Event::Kind::kArrives:
          arrive(event);
          break;
        case Event::Kind::kLands:
          land(event);
          break;
        case Event::Kind::kDone:
          finish_step(event.rank, event.slice);
          break;
      }
    }
    for (const uint64_t at : result_.finished_ps) {
      result_.makespan_ps = std::max(result_.makespan_ps, at);
    }
    return std::move(result_);
  }

 private:
  struct Rank {
    Resource out, in;  // ports
  };
  struct Slice {
    uint32_t round = 0;
    uint32_t pending = 0;  // steps of the round that are not done
  };
  struct Receive {
    bool posted = false;
    bool landed = false;
    bool added = false;  // on arrival
  };

  const Schedule& schedule(uint32_t rank) const { return job_.ranks[rank]; }
  Slice& slice_of(uint32_t rank, uint32_t slice) {
    return slices_[size_t{slice} * ranks_.size() + rank];
  }
  Receive& receive_of(uint32_t rank, uint32_t slice, uint32_t step) {
    return receives_[size_t{slice} * matching_.partner.size() + matching_.first[rank] + step];
  }

  void push(uint64_t at_ps, Event::Kind kind, uint32_t rank, uint32_t slice, uint32_t step) {
    events_.push({at_ps, sequence_++, rank, slice, step, kind});
  }

  uint64_t chunk_bytes(uint32_t rank, Slot slot, uint32_t slice) const {
    if (slot.buffer == Buffer::kScratch) slot = schedule(rank).scratch_like()[slot.index];
    const uint64_t elements = options_.bytes / options_.element_bytes;
    const uint32_t chunks = schedule(rank).chunks();
    const uint64_t mine =
        even_begin(elements, slot.index + 1, chunks) - even_begin(elements, slot.index, chunks);
    const Part part =
        slice_part(mine * options_.element_bytes, options_.element_bytes, slice, options_.slices);
    return part.end - part.begin;
  }

  uint64_t bytes_of(uint32_t rank, const Step& step, uint32_t slice) const {
    Slot slot = step.kind == Step::Kind::kSend ? step.a : step.dst;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < step.count; ++i, ++slot.index) bytes += chunk_bytes(rank, slot, slice);
    return bytes;
  }

  // Starts the slice's current round; skips empty rounds.
  void start_rounds(uint32_t rank, uint32_t slice) {
    Slice& state = slice_of(rank, slice);
    while (state.round < schedule(rank).rounds() && schedule(rank).steps(state.round).empty()) {
      ++state.round;
    }
    if (state.round == schedule(rank).rounds()) return finish_slice(rank, slice);
    const auto steps = schedule(rank).steps(state.round);
    state.pending = static_cast<uint32_t>(steps.size());
    for (const Step& step : steps) {
      start_step(rank, slice, step, static_cast<uint32_t>(&step - schedule(rank).steps().data()));
    }
  }

  void start_step(uint32_t rank, uint32_t slice, const Step& step, uint32_t number) {
    switch (step.kind) {
      case Step::Kind::kSend:
        return send(rank, slice, step, number);
      case Step::Kind::kRecv:
      case Step::Kind::kRecvReduce: {
        Receive& receive = receive_of(rank, slice, number);
        receive.posted = true;
        if (receive.landed) take(rank, slice, number);
        return;
      }
      case Step::Kind::kCopy:
        return compute(rank, slice, number, bytes_of(rank, step, slice));
      case Step::Kind::kReduce:
        return compute(
            rank, slice, number,
            bytes_of(rank, step, slice) * (step.sources - 1) * topology_.gathered_passes);
    }
  }

  void record(uint32_t rank, bool out, uint32_t step, uint32_t slice, uint64_t start,
              uint64_t duration) {
    if (options_.record) result_.uses.push_back({rank, out, step, slice, start, start + duration});
  }

  uint64_t port_time(const LinkCost& link, uint64_t bytes) const {
    return link.gap_ps + byte_time_ps(bytes, link.ps_per_kib);
  }

  void send(uint32_t rank, uint32_t slice, const Step& step, uint32_t number) {
    const auto peer = static_cast<uint32_t>(step.peer);
    const LinkCost& link = topology_.link(static_cast<int>(rank), step.peer);
    const int host = topology_.host(static_cast<int>(rank));
    const bool leaves = host != topology_.host(step.peer);
    const uint64_t bytes = bytes_of(rank, step, slice);
    const uint64_t duration = port_time(link, bytes);
    Resource& port = ranks_[rank].out;
    const uint64_t start =
        occupy(now_ps_, duration, port, leaves ? hosts_out_[static_cast<size_t>(host)] : port);
    record(rank, true, number, slice, start, duration);
    ++result_.messages;
    result_.bytes += bytes;
    push(start + duration, Event::Kind::kDone, rank, slice, number);
    const uint32_t receive = matching_.partner[matching_.first[rank] + number];
    push(start + link.latency_ps, Event::Kind::kArrives, peer, slice,
         receive - matching_.first[peer]);
  }

  // Cut-through: if the port is free, the last byte lands one latency after it was sent. A ready
  // rank adds the message on arrival.
  void arrive(const Event& event) {
    const Step& step = schedule(event.rank).steps()[event.step];
    const LinkCost& link = topology_.link(step.peer, static_cast<int>(event.rank));
    const int host = topology_.host(static_cast<int>(event.rank));
    const bool enters = host != topology_.host(step.peer);
    const uint64_t bytes = bytes_of(event.rank, step, event.slice);
    Receive& receive = receive_of(event.rank, event.slice, event.step);
    receive.added = receive.posted && step.kind == Step::Kind::kRecvReduce;
    const uint64_t duration =
        port_time(link, bytes) +
        (receive.added ? byte_time_ps(bytes, topology_.reduce_ps_per_kib) : 0);
    Resource& port = ranks_[event.rank].in;
    const uint64_t start =
        occupy(now_ps_, duration, port, enters ? hosts_in_[static_cast<size_t>(host)] : port);
    record(event.rank, false, event.step, event.slice, start, duration);
    push(start + duration, Event::Kind::kLands, event.rank, event.slice, event.step);
  }

  void land(const Event& event) {
    Receive& receive = receive_of(event.rank, event.slice, event.step);
    receive.landed = true;
    if (receive.posted) take(event.rank, event.slice, event.step);
  }

  void take(uint32_t rank, uint32_t slice, uint32_t number) {
    const Step& step = schedule(rank).steps()[number];
    if (step.kind == Step::Kind::kRecv || receive_of(rank, slice, number).added) {
      push(now_ps_, Event::Kind::kDone, rank, slice, number);
    } else {
      compute(rank, slice, number, bytes_of(rank, step, slice));
    }
  }

  // One thread drives a rank: it receives no messages while it computes.
  void compute(uint32_t rank, uint32_t slice, uint32_t number, uint64_t bytes) {
    const uint64_t duration = byte_time_ps(bytes, topology_.reduce_ps_per_kib);
    const uint64_t start = occupy(now_ps_, duration, ranks_[rank].in, ranks_[rank].in);
    record(rank, false, number, slice, start, duration);
    push(start + duration, Event::Kind::kDone, rank, slice, number);
  }

  void finish_step(uint32_t rank, uint32_t slice) {
    Slice& state = slice_of(rank, slice);
    if (--state.pending > 0) return;
    ++state.round;
    start_rounds(rank, slice);
  }

  void finish_slice(uint32_t rank, uint32_t slice) {
    result_.finished_ps[rank] = std::max(result_.finished_ps[rank], now_ps_);
    if (slice + options_.window < options_.slices) start_rounds(rank, slice + options_.window);
  }

  const Job& job_;
  const Topology topology_;
  const SimulateOptions options_;
  const Matching matching_;
  std::vector<Rank> ranks_;
  std::vector<Resource> hosts_out_, hosts_in_;
  std::vector<Slice> slices_;
  std::vector<Receive> receives_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t sequence_ = 0;
  uint64_t now_ps_ = 0;
  Simulation result_{.finished_ps = std::vector<uint64_t>(ranks_.size())};
};

}  // namespace

Simulation simulate(const Job& job, const Topology& topology, const SimulateOptions& options) {
  return Simulator(job, topology, options).run();
}

}  // namespace hccl_like
