#include "tests/proof/contributions.h"

#include <algorithm>

namespace hccl_like {

Contributions::Pieces Contributions::pieces(Set set) const {
  if (set >= kTable) return table_[set - kTable];
  const uint32_t first = begin(set), end = first + places(set);
  if (end <= ranks_) return {{first, end}};
  return {{0, end - ranks_}, {first, ranks_}};
}

Contributions::Set Contributions::number(Pieces pieces) {
  std::ranges::sort(pieces);
  Pieces merged;
  for (const auto& piece : pieces) {
    if (!merged.empty() && piece.first < merged.back().second) return kWrong;
    if (!merged.empty() && piece.first == merged.back().second)
      merged.back().second = piece.second;
    else
      merged.push_back(piece);
  }
  const auto [first, last] = std::pair(merged.front(), merged.back());
  if (merged.size() == 1) return run(first.first, first.second - first.first);
  if (merged.size() == 2 && first.first == 0 && last.second == ranks_)
    return run(last.first, first.second + last.second - last.first);
  const auto [at, is_new] = numbers_.try_emplace(merged, kTable + static_cast<Set>(table_.size()));
  if (is_new) table_.push_back(std::move(merged));
  return at->second;
}

}  // namespace hccl_like
