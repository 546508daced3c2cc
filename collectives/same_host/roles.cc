#include "collectives/same_host/roles.h"

namespace hccl_like {

Roles::Roles(Collective collective, int rank, int ranks, int root, RankSet inputs, RankSet outputs,
             bool sums_all)
    : collective_(collective),
      rank_(rank),
      root_(root),
      inputs_(inputs),
      outputs_(outputs),
      sums_all_(sums_all) {
  for (int from = 0; from < ranks; ++from) {
    if (reducing()) {
      const bool puts = !input_mapped(from);
      if (from == rank) puts_ = puts;
      staged_ |= puts || fetches(from);
      if (from == rank) continue;
      keeps_results_ |= fetches(from);
      pushes_ |= collects(from) && output_mapped(from);
      continue;
    }
    for (int to = 0; to < ranks; ++to) {
      const Path path = this->path(from, to);
      staged_ |= path == Path::kStaged;
      if (from != rank) continue;
      puts_ |= path == Path::kStaged;
      pushes_ |= path == Path::kPushed || path == Path::kShared;
    }
  }
}

Path Roles::path(int from, int to) const {
  if (from == to || !gives(collective_, root_, from, to)) return Path::kNone;
  const bool rooted = has_root(collective_);
  // Only rooted collectives are unbalanced, so only they split a pair's work.
  if (input_mapped(from)) return rooted && output_mapped(to) ? Path::kShared : Path::kPulled;
  return output_mapped(to) ? Path::kPushed : Path::kStaged;
}

bool Roles::collects(int rank) const {
  return reducing() && semantics(collective_).output == Chunking::kWhole &&
         gives(collective_, root_, rank, rank);
}

bool Roles::reads_staging_of(int rank) const {
  if (rank == rank_) return false;
  return reducing() ? !input_mapped(rank) : path(rank, rank_) == Path::kStaged;
}

}  // namespace hccl_like
