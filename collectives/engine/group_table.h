#pragma once
// The communicators of this process.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/link/link.h"

namespace hccl_like {

class Communicator;

// By id. Does not own them. Any thread.
class GroupTable {
 public:
  // A peer may make a group, call and fail before this process has made the group.
  struct EarlyAbort {
    uint64_t communicator;
    const Link* link;
    std::string reason;
  };
  // Returns the failure report that arrived before the group was made here, if any.
  std::optional<EarlyAbort> add(uint64_t id, const std::shared_ptr<Communicator>& communicator);
  void remove(uint64_t id);
  // Null if it does not exist (any more).
  std::shared_ptr<Communicator> find(uint64_t id) const;
  // The same; keeps the failure report of a group that this process has not made yet.
  std::shared_ptr<Communicator> find_or_keep(const Link& link, const AbortNotice& notice);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Communicator>> groups_;
  std::vector<EarlyAbort> early_;  // the last ones; also of groups without this process
};

}  // namespace hccl_like
