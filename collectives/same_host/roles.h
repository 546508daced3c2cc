#pragma once
// Each rank's part in a large call, given the memory that all ranks can map; equal on all ranks.
#include <cstdint>

#include "collectives/same_host/shape.h"

namespace hccl_like {

enum class Path : uint8_t {
  kNone,    // no bytes
  kStaged,  // the giver fills its staging buffer, the taker copies from there
  kPulled,  // the taker reads the giver's memory
  kPushed,  // the giver writes the taker's memory
  kShared,  // both at once: the taker reads one half, the giver writes the other
};

using RankSet = uint64_t;
inline constexpr int kMostLargeCallRanks = 64;
constexpr RankSet rank_bit(int rank) { return RankSet{1} << rank; }

class Roles {
 public:
  // `inputs`, `outputs`: ranks whose memory all others can map. `sums_all`: every rank sums all of
  // an all-reduce without such memory.
  Roles(Collective collective, int rank, int ranks, int root, RankSet inputs, RankSet outputs,
        bool sums_all = false);
  Roles() = default;

  bool reducing() const { return reduces(collective_); }
  bool input_mapped(int rank) const { return (inputs_ & rank_bit(rank)) != 0; }
  bool output_mapped(int rank) const { return (outputs_ & rank_bit(rank)) != 0; }

  // Collectives that only copy.
  Path path(int from, int to) const;
  // Collectives that reduce: whether a rank gets the whole result, not only its own share.
  bool collects(int rank) const;
  // Whether another rank must fetch the share that this rank keeps in its staging buffer.
  bool fetches(int rank) const { return !sums_all_ && collects(rank) && !output_mapped(rank); }
  bool sums_all() const { return sums_all_; }

  // Whether this rank stages its input, and whether it writes results to its staging buffer.
  bool puts() const { return puts_; }
  bool keeps_results() const { return keeps_results_; }
  bool reads_staging_of(int rank) const;
  bool pushes() const { return pushes_; }
  // Whether any rank lets others access its memory.
  bool lends() const { return (inputs_ | outputs_) != 0; }
  // Whether any rank uses slots of a staging buffer.
  bool staged() const { return staged_; }

 private:
  Collective collective_{};
  int rank_ = 0;
  int root_ = 0;
  RankSet inputs_ = 0, outputs_ = 0;
  bool sums_all_ = false;
  bool puts_ = false;
  bool keeps_results_ = false;
  bool pushes_ = false;
  bool staged_ = false;
};

}  // namespace hccl_like
