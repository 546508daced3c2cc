#pragma once
// Who moves what in a large call, given whose memory all ranks can map: every rank computes the
// same.
#include <cstdint>

#include "collectives/same_host/shape.h"

namespace hccl_like {

// How one rank's bytes get to another.
enum class Path : uint8_t {
  kNone,    // they do not
  kStaged,  // the giver puts them into its staging buffer, the taker copies them from there
  kPulled,  // the taker reads the giver's memory
  kPushed,  // the giver writes the taker's memory
  kShared,  // both halves at once: the taker reads, the giver writes
};

// A set of ranks, as bits.
using RankSet = uint64_t;
inline constexpr int kMostLargeCallRanks = 64;
constexpr RankSet rank_bit(int rank) { return RankSet{1} << rank; }

class Roles {
 public:
  // `inputs` and `outputs`: the ranks whose memory all others can map. `sums_all`: of an all-reduce
  // without such memory, that every rank sums all of it for itself.
  Roles(Collective collective, int rank, int ranks, int root, RankSet inputs, RankSet outputs,
        bool sums_all = false);
  Roles() = default;

  bool reducing() const { return reduces(collective_); }
  bool input_mapped(int rank) const { return (inputs_ & rank_bit(rank)) != 0; }
  bool output_mapped(int rank) const { return (outputs_ & rank_bit(rank)) != 0; }

  // Of collectives that only copy.
  Path path(int from, int to) const;
  // Of collectives that reduce: whether a rank gets all shares of the result, not only its own.
  bool collects(int rank) const;
  // Whether a rank, which is not this one, must be given this rank's share of the result in this
  // rank's staging buffer.
  bool fetches(int rank) const { return !sums_all_ && collects(rank) && !output_mapped(rank); }
  // Whether every rank reduces all of it, instead of a share for all.
  bool sums_all() const { return sums_all_; }

  // Whether this rank puts its input into its staging buffer; whether it writes results there.
  bool puts() const { return puts_; }
  bool keeps_results() const { return keeps_results_; }
  // Whether this rank reads `rank`'s staging buffer.
  bool reads_staging_of(int rank) const;
  // Whether this rank writes into other ranks' memory.
  bool pushes() const { return pushes_; }
  // Whether any rank lets others use its memory.
  bool lends() const { return (inputs_ | outputs_) != 0; }
  // Whether any rank uses a staging buffer's slots.
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
