#pragma once
// What a user may say about one process group.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

inline constexpr const char* kBackendName = "hccl-like";

// c10d's options, and what may differ between the groups of a process; the other settings concern all of it
// (core/config.h). A copy is independent.
struct Options final : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds wait = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, wait) {}
  explicit Options(const c10d::Backend::Options& other) : Options(other.timeout) {
    group_name = other.group_name;
    group_desc = other.group_desc;
    global_ranks_in_group = other.global_ranks_in_group;
    use_pg_for_symm_mem_rendezvous = other.use_pg_for_symm_mem_rendezvous;
  }

  // As the setting HCCL_LIKE_ALGO, which it replaces for this group unless it is empty: "allreduce:ring;broadcast:chain".
  // The same on all ranks.
  std::string algorithms;
};

}  // namespace hccl_like
