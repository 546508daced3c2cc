#include "collectives/engine/group_table.h"

#include <algorithm>

namespace hccl_like {
namespace {

constexpr size_t kEarlyAborts = 64;

}  // namespace

std::optional<GroupTable::EarlyAbort> GroupTable::add(
    uint64_t id, const std::shared_ptr<Communicator>& communicator) {
  std::lock_guard lock(mutex_);
  groups_[id] = communicator;
  const auto found = std::ranges::find(early_, id, &EarlyAbort::communicator);
  if (found == early_.end()) return std::nullopt;
  EarlyAbort early = std::move(*found);
  early_.erase(found);
  return early;
}

void GroupTable::remove(uint64_t id) {
  std::lock_guard lock(mutex_);
  groups_.erase(id);
}

std::shared_ptr<Communicator> GroupTable::find(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Communicator> GroupTable::find_or_keep(const Link& link,
                                                       const AbortNotice& notice) {
  std::lock_guard lock(mutex_);
  if (const auto found = groups_.find(notice.communicator); found != groups_.end())
    if (auto communicator = found->second.lock()) return communicator;
  if (early_.size() == kEarlyAborts) early_.erase(early_.begin());
  early_.push_back({notice.communicator, &link, std::string(notice.reason)});
  return nullptr;
}

}  // namespace hccl_like
