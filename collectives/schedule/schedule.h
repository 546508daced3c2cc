#pragma once
// A collective algorithm as data: one rank's sends, receives and reductions in rounds of chunks.
//
// A chunk is a numbered part of the payload; a Layout (layout.h) maps it to memory. Steps of a
// round run in any order; a round begins when the previous one is finished. A round must not write
// memory that it reads, even if input and output are the same memory (check.h proves it). The k-th
// send to a peer in a round matches the peer's k-th receive from this rank in the same round.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hccl_like {

enum class Buffer : uint8_t { kInput, kOutput, kScratch };

// Chunk numbers mean the same on every rank.
struct Slot {
  Buffer buffer = Buffer::kInput;
  uint32_t index = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};

// "in[3]", "scratch[0..2]".
std::string to_string(Slot slot, uint32_t count = 1);

constexpr Slot in(size_t chunk) { return {Buffer::kInput, static_cast<uint32_t>(chunk)}; }
constexpr Slot out(size_t chunk) { return {Buffer::kOutput, static_cast<uint32_t>(chunk)}; }
constexpr Slot scratch(size_t index) { return {Buffer::kScratch, static_cast<uint32_t>(index)}; }

struct Step {
  enum class Kind : uint8_t {
    kSend,        // a -> peer
    kRecv,        // dst = incoming
    kRecvReduce,  // dst = a op incoming
    kCopy,        // dst = a
    kReduce,      // dst = sources[0] op sources[1] op ..., in this order, rounded once
  };
  Kind kind;
  int32_t peer = -1;  // group rank; -1 for local steps
  // Consecutive chunks, from a and dst upwards: one message in any layout.
  uint32_t count = 1;
  Slot a{};
  Slot dst{};
  // kReduce only: range in the schedule's list of sources.
  uint32_t first_source = 0;
  uint32_t sources = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

Step send(int peer, Slot what, uint32_t count = 1);
Step recv(int peer, Slot into, uint32_t count = 1);
Step recv_reduce(int peer, Slot mine, Slot dst, uint32_t count = 1);
Step copy(Slot from, Slot to, uint32_t count = 1);

class Schedule {
 public:
  // `chunks`: number of chunks of the input and of the output.
  explicit Schedule(uint32_t chunks) : chunks_(chunks) {}

  // Appends a round. Drops steps with count 0. A round without steps stays, since messages match by
  // round number; only trailing idle rounds may be omitted.
  template <class... Steps>
  void round(const Steps&... steps) {
    begin_round();
    (add(steps), ...);
  }
  // The same step by step. The first add() starts round 0 if no round has begun.
  void begin_round() { round_begin_.push_back(static_cast<uint32_t>(steps_.size())); }
  void add(const Step& step) {
    if (step.count == 0) return;
    if (round_begin_.empty()) begin_round();
    steps_.push_back(step);
  }
  // dst = sources[0] op sources[1] op ...; a single source is a copy.
  void add_reduce(Slot dst, std::span<const Slot> sources);
  // Reserves `count` scratch slots as large as chunk `like` of the input or the output; returns the
  // first.
  Slot add_scratch(Slot like, size_t count = 1);

  uint32_t chunks() const { return chunks_; }
  size_t rounds() const { return round_begin_.size(); }
  std::span<const Step> steps(size_t round) const {
    const size_t begin = round_begin_[round];
    const size_t end = round + 1 < round_begin_.size() ? round_begin_[round + 1] : steps_.size();
    return std::span(steps_).subspan(begin, end - begin);
  }
  std::span<const Step> steps() const { return steps_; }  // of all rounds, in order
  std::span<const Slot> sources(const Step& step) const;
  std::span<const Slot> scratch_like() const { return scratch_; }

  // One line per round: "2: send in[3]->1  recv_reduce in[0]+<-2 to out[0]". Consecutive chunks are
  // "in[3..5]"; a round without steps is "2: idle".
  std::string to_string() const;
  std::string to_string(const Step& step) const;

  friend bool operator==(const Schedule&, const Schedule&) = default;

 private:
  uint32_t chunks_;
  std::vector<Step> steps_;
  std::vector<uint32_t> round_begin_;  // index of each round's first step
  std::vector<Slot> sources_;
  std::vector<Slot> scratch_;
};

// One rank's schedule of two with every sum as one kReduce step, of rank 0's data and then rank
// 1's, in place of kRecvReduce steps. Has twice the rounds.
Schedule sums_at_once(const Schedule& schedule, int rank);

}  // namespace hccl_like
