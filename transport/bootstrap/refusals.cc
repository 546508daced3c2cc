#include "transport/bootstrap/refusals.h"

#include <atomic>
#include <numeric>

#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr std::array<std::string_view, kRefusals> kWords{
    "it does not greet as this version of hccl-like does",
    "it wants another process, perhaps one that had this address before",
    "it does not have the job's key: it is of another job, or its secret is another one",
    "it repeats what another connection has said",
    "it was too slow to prove who it is",
    "too many others came without proving who they are",
    "it belongs to another user",
    "it left before it proved who it is",
};

constexpr std::array<std::string_view, kRefusals> kNames{
    "not_ours", "other_process", "unproved",   "replayed",
    "too_slow", "too_many",      "other_user", "left",
};

// Process-wide statistics over all listeners.
std::array<std::atomic<uint64_t>, kRefusals> all_doors{};

}  // namespace

std::string_view name(Refusal refusal) noexcept { return kNames[static_cast<size_t>(refusal)]; }

std::array<uint64_t, kRefusals> refused_by_this_process() noexcept {
  std::array<uint64_t, kRefusals> counts{};
  for (size_t i = 0; i < kRefusals; ++i) counts[i] = all_doors[i].load(std::memory_order_relaxed);
  return counts;
}

std::string_view describe(Refusal refusal) noexcept { return kWords[static_cast<size_t>(refusal)]; }

void Refusals::count(Refusal refusal, const std::string& from) {
  ++counts_[static_cast<size_t>(refusal)];
  all_doors[static_cast<size_t>(refusal)].fetch_add(1, std::memory_order_relaxed);
  ++untold_;
  warn_ |= refusal == Refusal::kUnproved || refusal == Refusal::kReplayed;
  if (!next_line_.expired()) return;
  const auto line = [&] {
    return "refused " +
           (untold_ == 1 ? "a connection"
                         : std::to_string(untold_) + " connections, the last one") +
           " from " + from + ": " + std::string(describe(refusal));
  };
  warn_ ? log_warn(line()) : log_info(line);
  untold_ = 0;
  warn_ = false;
  next_line_ = Deadline::after(kTellEvery);
}

uint64_t Refusals::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

}  // namespace hccl_like
