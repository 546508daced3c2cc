#include "collectives/schedule/collective.h"

#include <algorithm>
#include <array>

namespace hccl_like {

using enum Collective;

std::string_view name(Collective collective) {
  static constexpr std::array<std::string_view, kCollectives> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
      "scatter",    "all_to_all",     "barrier",    "send",      "recv",
  };
  return kNames[static_cast<size_t>(collective)];
}

std::optional<Collective> collective_named(std::string_view wanted) {
  struct Alias {
    std::string_view name;
    Collective collective;
  };
  static constexpr Alias kAliases[] = {
      {"all_gather_into_tensor", kAllGather},
      {"all_gather_single", kAllGather},
      {"reduce_scatter_tensor", kReduceScatter},
      {"reduce_scatter_single", kReduceScatter},
      {"all_to_all_single", kAllToAll},
      {"allreduce", kAllReduce},
      {"allgather", kAllGather},
      {"alltoall", kAllToAll},
  };
  for (int i = 0; i < kCollectives; ++i)
    if (name(static_cast<Collective>(i)) == wanted) return static_cast<Collective>(i);
  const auto* const alias = std::ranges::find(kAliases, wanted, &Alias::name);
  return alias == std::end(kAliases) ? std::nullopt : std::optional(alias->collective);
}

}  // namespace hccl_like
