#pragma once
// What a user may say about one process group.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

inline constexpr const char* kBackendName = "hccl-like";

// Whether symmetric memory meets through the group: some versions of torch have this option.
template <class Base>
concept ChoosesRendezvous = requires(Base options) { options.use_pg_for_symm_mem_rendezvous; };

template <class Base>
void copy_rendezvous_choice(const Base& from, Base& to) {
  if constexpr (ChoosesRendezvous<Base>)
    to.use_pg_for_symm_mem_rendezvous = from.use_pg_for_symm_mem_rendezvous;
}

// c10d's options, and what may differ between the groups of a process; the other settings concern
// all of it (core/settings/config.h). A copy is independent.
struct Options final : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds wait = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, wait) {}
  explicit Options(const c10d::Backend::Options& other) : Options(other.timeout) {
    group_name = other.group_name;
    group_desc = other.group_desc;
    global_ranks_in_group = other.global_ranks_in_group;
    copy_rendezvous_choice<c10d::Backend::Options>(other, *this);
  }

  // As the setting HCCL_LIKE_ALGO, which it replaces for this group unless it is empty:
  // "all_reduce:ring;broadcast:chain". The same on all ranks.
  std::string algorithms;
};

}  // namespace hccl_like
