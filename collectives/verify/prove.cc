#include "collectives/verify/prove.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace hccl_like {

namespace {

// The memory of all ranks. A message of round k depends only on its sender's earlier rounds, so
// lock-step rounds give the same values as any other order.
template <class Value>
class ProofMachine {
 public:
  ProofMachine(const Job& job, Memory memory)
      : job_(job), matching_(match(job)), in_place_(memory == Memory::kInPlace) {
    for (const Schedule& schedule : job.ranks) {
      cells_.emplace_back(2 * size_t{schedule.chunks()} + schedule.scratch_like().size());
    }
    messages_.resize(matching_.partner.size());
  }

  const std::string& fault() const { return matching_.fault; }

  Value& at(size_t rank, Slot slot) {
    return cells_[rank][cell_of(slot, job_.ranks[rank].chunks(), in_place_)];
  }

  void run() {
    size_t rounds = 0;
    for (const Schedule& schedule : job_.ranks) rounds = std::max(rounds, schedule.rounds());
    for (size_t round = 0; round < rounds; ++round) {
      for (size_t rank = 0; rank < job_.ranks.size(); ++rank) {
        if (round < job_.ranks[rank].rounds()) send_all(rank, round);
      }
      for (size_t rank = 0; rank < job_.ranks.size(); ++rank) {
        if (round < job_.ranks[rank].rounds()) finish(rank, round);
      }
    }
  }

 private:
  struct Write {
    Slot slot;
    Value value;
  };

  static Slot after(Slot slot, uint32_t i) { return {slot.buffer, slot.index + i}; }

  uint32_t number(size_t rank, const Step& step) const {
    const Step* first = job_.ranks[rank].steps().data();
    return matching_.first[rank] + static_cast<uint32_t>(&step - first);
  }

  void send_all(size_t rank, size_t round) {
    for (const Step& step : job_.ranks[rank].steps(round)) {
      if (step.kind != Step::Kind::kSend) continue;
      std::vector<Value>& message = messages_[number(rank, step)];
      for (uint32_t i = 0; i < step.count; ++i) message.push_back(at(rank, after(step.a, i)));
    }
  }

  // All steps read the values from before the round.
  void finish(size_t rank, size_t round) {
    writes_.clear();
    for (const Step& step : job_.ranks[rank].steps(round)) {
      switch (step.kind) {
        case Step::Kind::kSend:
          break;
        case Step::Kind::kRecv:
        case Step::Kind::kRecvReduce: {
          std::vector<Value>& message = messages_[matching_.partner[number(rank, step)]];
          for (uint32_t i = 0; i < step.count; ++i) {
            const bool adds = step.kind == Step::Kind::kRecvReduce;
            writes_.push_back(
                {after(step.dst, i), adds ? at(rank, after(step.a, i)) + message[i] : message[i]});
          }
          message = {};
          break;
        }
        case Step::Kind::kCopy:
          for (uint32_t i = 0; i < step.count; ++i) {
            writes_.push_back({after(step.dst, i), at(rank, after(step.a, i))});
          }
          break;
        case Step::Kind::kReduce: {
          const auto sources = job_.ranks[rank].sources(step);
          Value sum = at(rank, sources[0]);
          for (const Slot& source : sources.subspan(1)) sum += at(rank, source);
          writes_.push_back({step.dst, sum});
          break;
        }
      }
    }
    for (const Write& write : writes_) at(rank, write.slot) = write.value;
  }

  const Job& job_;
  const Matching matching_;
  const bool in_place_;
  std::vector<std::vector<Value>> cells_;     // by rank: inputs, outputs, scratch slots
  std::vector<std::vector<Value>> messages_;  // by global number of the sending step
  std::vector<Write> writes_;
};

// splitmix64: unrelated numbers for all pairs.
uint64_t number_of(uint64_t rank, uint64_t chunk) {
  uint64_t x = (rank << 32 | chunk) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t kGarbage = uint64_t{1}
                              << 31;  // added to the chunk: numbers that no rank contributes

uint64_t garbage(size_t rank, size_t cell) { return number_of(rank, kGarbage + cell); }

// The value that the collective promises. `sums`: the sum of each chunk over all ranks.
uint64_t expected(const Job& job, size_t rank, uint32_t chunk, const std::vector<uint64_t>& sums) {
  const auto root = static_cast<size_t>(job.root);
  switch (job.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce:
      return sums[chunk];
    case Collective::kAllGather:
    case Collective::kGather:
      return number_of(chunk, chunk);
    case Collective::kAllToAll:
      return number_of(chunk, rank);
    default:
      return number_of(root, chunk);
  }
}

// A barrier promises no values: every rank must hear of every other, directly or indirectly.
std::string prove_barrier(const Job& job) {
  const Matching matching = match(job);
  if (!matching.fault.empty()) return matching.fault;
  const size_t size = job.ranks.size();
  std::vector<std::vector<bool>> heard(size, std::vector<bool>(size));
  size_t rounds = 0;
  for (size_t rank = 0; rank < size; ++rank) {
    heard[rank][rank] = true;
    rounds = std::max(rounds, job.ranks[rank].rounds());
  }
  for (size_t round = 0; round < rounds; ++round) {
    const auto before = heard;
    for (size_t rank = 0; rank < size; ++rank) {
      if (round >= job.ranks[rank].rounds()) continue;
      for (const Step& step : job.ranks[rank].steps(round)) {
        if (step.kind != Step::Kind::kRecv) continue;
        for (size_t other = 0; other < size; ++other) {
          if (before[static_cast<size_t>(step.peer)][other]) heard[rank][other] = true;
        }
      }
    }
  }
  for (size_t rank = 0; rank < size; ++rank) {
    const auto silent = std::ranges::find(heard[rank], false) - heard[rank].begin();
    if (silent < static_cast<ptrdiff_t>(size)) {
      return "rank " + std::to_string(rank) + " leaves without having heard of rank " +
             std::to_string(silent);
    }
  }
  return "";
}

template <class Value, class Initial>
std::vector<std::vector<Value>> outputs_of(const Job& job, Memory memory, const Initial& initial) {
  ProofMachine<Value> machine(job, memory);
  const uint32_t chunks = job.ranks[0].chunks();
  std::vector<std::vector<Value>> outputs(job.ranks.size(), std::vector<Value>(chunks));
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    for (uint32_t c = 0; c < chunks; ++c)
      for (const Slot slot : {out(c), in(c)})
        machine.at(rank, slot) = initial(static_cast<int>(rank), slot);
  machine.run();
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    for (uint32_t c = 0; c < chunks; ++c) outputs[rank][c] = machine.at(rank, out(c));
  return outputs;
}

// The terms of a sum, and how often each occurs.
struct Terms {
  using Cell = std::tuple<size_t, Buffer, uint32_t>;
  std::map<Cell, int> times;

  static Terms of(size_t rank, Slot slot) { return {{{{rank, slot.buffer, slot.index}, 1}}}; }
  Terms& operator+=(const Terms& other) {
    for (const auto& [cell, count] : other.times) times[cell] += count;
    return *this;
  }
  friend Terms operator+(Terms a, const Terms& b) { return a += b; }
};

bool writes(const Step& step, Slot slot) {
  return step.kind != Step::Kind::kSend && step.dst.buffer == slot.buffer &&
         slot.index >= step.dst.index && slot.index - step.dst.index < step.count;
}

// "; round 4 wrote it last: recv out[2]<-0"
std::string last_write(const Schedule& schedule, Slot slot) {
  for (size_t round = schedule.rounds(); round-- > 0;)
    for (const Step& step : schedule.steps(round))
      if (writes(step, slot))
        return "; round " + std::to_string(round) + " wrote it last: " + schedule.to_string(step);
  return "; no round writes it";
}

// Of a wrong output: ": in[2] of rank 3 is missing, in[2] of rank 0 counts 2 times; round 4 ...".
std::string contents(const Job& job, Memory memory, size_t rank, uint32_t chunk) {
  constexpr size_t kMostCells = 100'000;  // of all ranks, for which the time is bearable
  if (job.ranks.size() * job.ranks[0].chunks() > kMostCells) return "";
  ProofMachine<Terms> machine(job, memory);
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const uint32_t chunks = job.ranks[r].chunks();
    for (uint32_t i = 0; i < job.ranks[r].scratch_like().size(); ++i)
      machine.at(r, scratch(i)) = Terms::of(r, scratch(i));
    for (uint32_t c = 0; c < chunks; ++c) {
      const bool reads = may_read_input(job, static_cast<int>(r), c);
      machine.at(r, out(c)) = Terms::of(r, out(c));
      if (reads || memory == Memory::kSeparate) machine.at(r, in(c)) = Terms::of(r, in(c));
    }
  }
  machine.run();
  Terms found = machine.at(rank, out(chunk)), wanted;
  const auto to = static_cast<int>(rank);
  for (int from = 0; from < job.size(); ++from)
    if (gives(job.collective, job.root, from, to) &&
        (reduces(job.collective) || semantics(job.collective).output != Chunking::kPerRank ||
         static_cast<uint32_t>(from) == chunk))
      wanted += Terms::of(static_cast<size_t>(from),
                          in(semantics(job.collective).input == Chunking::kPerRank ? rank : chunk));
  std::string text;
  const auto say = [&](const Terms::Cell& cell, const std::string& what) {
    const auto [owner, buffer, index] = cell;
    text += (text.empty() ? ": " : ", ") + to_string(Slot{buffer, index}) + " of rank " +
            std::to_string(owner) + what;
  };
  for (const auto& [cell, count] : wanted.times)
    if (!found.times.contains(cell)) say(cell, " is missing");
  for (const auto& [cell, count] : found.times) {
    if (!wanted.times.contains(cell))
      say(cell, std::get<Buffer>(cell) == Buffer::kInput ? " does not belong there"
                                                         : " was read before it was written");
    else if (count > 1)
      say(cell, " counts " + std::to_string(count) + " times");
  }
  return text + last_write(job.ranks[rank], out(chunk));
}

}  // namespace

std::string prove(const Job& job, Memory memory) {
  if (job.collective == Collective::kBarrier) return prove_barrier(job);
  ProofMachine<uint64_t> machine(job, memory);
  if (!machine.fault().empty()) return machine.fault();

  const uint32_t chunks = job.ranks[0].chunks();
  std::vector<uint64_t> sums(chunks);
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const Schedule& schedule = job.ranks[rank];
    for (uint32_t c = 0; c < chunks; ++c) {
      machine.at(rank, out(c)) = garbage(rank, chunks + c);
      const bool reads = may_read_input(job, static_cast<int>(rank), c);
      // In place, memory that is no input is output.
      if (reads || memory == Memory::kSeparate) {
        machine.at(rank, in(c)) = reads ? number_of(rank, c) : garbage(rank, c);
      }
      sums[c] += number_of(rank, c);
    }
    for (uint32_t i = 0; i < schedule.scratch_like().size(); ++i) {
      machine.at(rank, scratch(i)) = garbage(rank, 2 * size_t{chunks} + i);
    }
  }

  machine.run();

  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    // Ranks outside a message receive nothing.
    const bool bystander = job.ranks[rank].steps().empty() && job.collective == Collective::kSend;
    for (uint32_t c = 0; c < chunks; ++c) {
      const bool writes = !bystander && may_write_output(job, static_cast<int>(rank), c);
      if (memory == Memory::kInPlace && !writes) continue;
      const uint64_t want = writes ? expected(job, rank, c, sums) : garbage(rank, chunks + c);
      if (machine.at(rank, out(c)) == want) continue;
      return "rank " + std::to_string(rank) + " of " + std::to_string(job.size()) + ": out[" +
             std::to_string(c) +
             (writes ? "] does not hold what it should" + contents(job, memory, rank, c)
                     : "] was written and is not this rank's to write" +
                           last_write(job.ranks[rank], out(c)));
    }
  }
  return "";
}

std::vector<std::vector<float>> run_on_floats(
    const Job& job, const std::function<float(int rank, int chunk)>& input) {
  return outputs_of<float>(job, Memory::kSeparate, [&](int rank, Slot slot) {
    return slot.buffer == Buffer::kInput ? input(rank, static_cast<int>(slot.index)) : 0.0f;
  });
}

std::vector<std::vector<uint64_t>> run_on_numbers(
    const Job& job, Memory memory, const std::function<uint64_t(int rank, Slot slot)>& value) {
  return outputs_of<uint64_t>(job, memory, value);
}

}  // namespace hccl_like
