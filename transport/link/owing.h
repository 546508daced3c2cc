#pragma once
// Data that the links of a process accepted and that leave only when a link is driven.
#include <algorithm>
#include <memory>
#include <vector>

#include "transport/link/link.h"

namespace hccl_like {

inline bool owe(const std::vector<std::unique_ptr<Link>>& links) {
  return std::ranges::any_of(links, [](const auto& link) { return link->owes(); });
}

// Flushes as much as possible; true if nothing is left.
inline bool hand_on(const std::vector<std::unique_ptr<Link>>& links) {
  for (const auto& link : links)
    if (link->owes()) link->flushed();
  return !owe(links);
}

}  // namespace hccl_like
