#pragma once
// Options of one process group.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

inline constexpr const char* kBackendName = "hccl-like";

// Some torch versions have this option: symmetric memory uses the group for its rendezvous.
template <class Base>
concept ChoosesRendezvous = requires(Base options) { options.use_pg_for_symm_mem_rendezvous; };

template <class Base>
void copy_rendezvous_choice(const Base& from, Base& to) {
  if constexpr (ChoosesRendezvous<Base>)
    to.use_pg_for_symm_mem_rendezvous = from.use_pg_for_symm_mem_rendezvous;
}

// c10d's options and the settings that may differ between groups; all other settings are per
// process (core/settings/config.h). A copy is independent.
struct Options final : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds wait = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, wait) {}
  explicit Options(const c10d::Backend::Options& other) : Options(other.timeout) {
    group_name = other.group_name;
    group_desc = other.group_desc;
    global_ranks_in_group = other.global_ranks_in_group;
    copy_rendezvous_choice<c10d::Backend::Options>(other, *this);
  }

  // Overrides HCCL_LIKE_ALGO unless empty: "all_reduce:ring;broadcast:chain"; same on all ranks.
  std::string algorithms;
  // As HCCL_LIKE_DETERMINISTIC=1, for this group; same on all ranks.
  bool deterministic = false;
  // Overrides HCCL_LIKE_COMPRESSION unless empty: "none", "bf16", "mx8", "mx4"; same on all ranks.
  std::string compression;
};

}  // namespace hccl_like
