#pragma once
// What a process's links still hold of what was handed to them, which leaves only if somebody calls
// them.
#include <algorithm>
#include <memory>
#include <vector>

#include "transport/link/link.h"

namespace hccl_like {

inline bool owe(const std::vector<std::unique_ptr<Link>>& links) {
  return std::ranges::any_of(links, [](const auto& link) { return link->owes(); });
}

// Hands on what leaves now; true if nothing is left.
inline bool hand_on(const std::vector<std::unique_ptr<Link>>& links) {
  for (const auto& link : links)
    if (link->owes()) link->flushed();
  return !owe(links);
}

}  // namespace hccl_like
