// Failures of a group, and the groups that fail with it.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/communicator.h"
#include "core/base/log.h"

namespace hccl_like {

void Communicator::abort(std::string reason) {
  Error error{ErrorCode::kAborted, "group " + identity_.name + " was aborted on rank " +
                                       std::to_string(number_of(rank())) + ": " +
                                       std::move(reason)};
  engine_.abort(*this, std::move(error));
}

void Communicator::tie(const std::shared_ptr<Communicator>& one,
                       const std::shared_ptr<Communicator>& other) {
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    std::lock_guard lock(from->mutex_);
    from->tied_ = to;
  }
}

std::shared_ptr<Communicator> Communicator::part(std::span<const int> ranks) {
  Identity child;
  child.name = identity_.name;
  for (const int rank : ranks) child.numbers.push_back(number_of(rank));
  auto part = split(ranks, std::move(child));
  if (!part) return nullptr;
  part->force(without_own(engine_.config().algo));
  part->codec_ = codec_.load();
  {
    std::lock_guard lock(part->mutex_);
    part->whole_ = weak_from_this();
  }
  {
    std::lock_guard lock(mutex_);
    parts_.push_back(part);
  }
  if (auto error = failure()) part->engine_.abort(*part, std::move(*error));
  return part;
}

// Each rank that gets a failure report ends the tied communicator and the parts itself. Ranks
// outside of a part hear of its failure from its members.
std::vector<Communicator::Relative> Communicator::relatives() const {
  std::lock_guard lock(mutex_);
  std::vector<Relative> relatives{{tied_.lock(), false}, {whole_.lock(), true}};
  for (const auto& part : parts_) relatives.push_back({part.lock(), false});
  std::erase_if(relatives, [](const Relative& one) { return one.communicator == nullptr; });
  return relatives;
}

std::optional<Error> Communicator::failure() const {
  if (!has_failed()) return std::nullopt;
  std::lock_guard lock(mutex_);
  return failure_;
}

bool Communicator::remember(const Error& error) {
  std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_ = error;
  failed_.store(true, std::memory_order_release);
  log_info([&] { return "group " + identity_.name + " failed: " + to_string(error); });
  return true;
}

}  // namespace hccl_like
