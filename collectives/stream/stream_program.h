#pragma once
// A schedule as one rank's work for a device stream: no host thread moves a byte.
//
// For ranks of one host whose devices read each other's memory. A receive is a copy out of the
// sender's chunk, made by the receiver's stream; a send is no work. Each rank has one word, a
// 64-bit number of which every other rank has a copy in host memory. Only its rank's stream writes
// the word, and only to larger values, so nothing is ever reset: a call adds its values to those
// before. The one exception: a rank whose group has failed releases its copies, which is to set
// them to the largest value.
//
//   word of rank r >= 1        r's input is in place; other ranks may read it
//   word of rank r >= k + 2    r has finished round k: its results may be read, and what r has
//                              read in round k may be overwritten
//
// A stream waits for the words of the ranks that it reads from, before it overwrites memory that
// others have read, and in the end for all readers of its memory. stream_check.h proves this order.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/verify/job.h"

namespace hccl_like {

// A chunk of a rank of the group.
struct RankSlot {
  int32_t rank = 0;
  Slot slot{};
  friend bool operator==(const RankSlot&, const RankSlot&) = default;
};

struct StreamStep {
  enum class Kind : uint8_t {
    kWait,    // until the word of `rank` is at least `value`
    kSignal,  // the word of this rank = value
    kReset,   // this rank's copies of the words of all others = 0
    kReduce,  // dst = sources[0] op sources[1] op ...; dst may be a source; one source: a copy
  };
  Kind kind = Kind::kReduce;
  int32_t rank = 0;
  uint64_t value = 0;   // above that of the word before the call
  bool second = false;  // the second word of each rank (replayable)
  Slot dst{};           // of this rank
  uint32_t count = 1;   // consecutive chunks, from dst and from each source upwards
  uint32_t first_source = 0;
  uint32_t sources = 0;
  bool beside = false;  // a copy that may run at any time of the call: no other step concerns it
  friend bool operator==(const StreamStep&, const StreamStep&) = default;
};

struct StreamProgram {
  int32_t rank = 0;
  std::vector<StreamStep> steps;
  std::vector<RankSlot> all_sources;
  std::vector<Slot> scratch_like;  // an input or output chunk of each scratch slot's size
  uint64_t values = 0;             // the growth of every rank's word in a call

  std::span<const RankSlot> sources(const StreamStep& step) const {
    return std::span(all_sources).subspan(step.first_source, step.sources);
  }
  // A line for each step: "wait 1 >= 2", "out[0] = 0:in[0] + 1:in[0]", "signal 2", and
  // "out[0] = 0:in[0] (beside)"; "second " precedes steps with the second words, as "reset".
  std::string to_string() const;
};

// The program as a graph of the device runs it again and again, with words of its own that are 0
// before and after each run. Every rank has a second word:
//
//   word of rank r >= values       r has finished the program
//   second word of rank r >= 1     r has reset its copies of the first words
//
// In the end each stream waits for all first words, resets its copies, signals its second word,
// waits for all second words, and resets its copies of those. So a word is written again only after
// each reader has reset it: a rank begins the next run when all have reset the first words, and
// signals its second word there only after all have begun that run, so have reset the second words.
StreamProgram replayable(StreamProgram program, int32_t ranks);

// The programs of all ranks. `in_place`: in(c) and out(c) are the same memory on every rank, as
// may_run_in_place() allows. The job must have passed check().
std::vector<StreamProgram> compile_streams(const Job& job, bool in_place);

}  // namespace hccl_like
