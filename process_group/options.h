#pragma once
// What a user may say about one process group.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

inline constexpr const char* kBackendName = "hccl-like";

// c10d's options and no more: all other settings concern the whole process (core/config.h). A copy is independent.
struct Options final : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds wait = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, wait) {}
  explicit Options(const c10d::Backend::Options& other) : Options(other.timeout) {
    group_name = other.group_name;
    group_desc = other.group_desc;
    global_ranks_in_group = other.global_ranks_in_group;
  }
};

}  // namespace hccl_like
