#pragma once
// Suspends all groups of this process, and opens them again (docs/elastic.md).
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "process_group/backend/backend.h"

namespace hccl_like {

// One per process. A suspension has three steps, between which the ranks agree through the store:
// hold() refuses calls and looks whether the groups can be restored; release() takes that back;
// leave() closes the session. Then come rejoin() of each group and, at the end, resumed().
// Any thread, one at a time, without the GIL; no group is made or destroyed meanwhile.
class Suspension {
 public:
  using Groups = std::vector<c10::intrusive_ptr<Backend>>;

  // The open groups of the session, the largest first, then by id: all ranks use the same order.
  static Groups open_groups(Session& session);

  // Waits for the calls in flight. Throws an Exception, and holds no group then, if a call is not
  // over at the deadline, or if something is left that could not be closed. `session`: of the
  // groups; null without any.
  static void hold(const Groups& groups, const std::shared_ptr<Session>& session,
                   Deadline deadline);
  static void release(const Groups& groups);
  // Closes every descriptor, mapping and thread of the groups' session. Tensors in the shared pool
  // are ordinary memory until resumed(). Throws kSystem if there is no memory for that.
  void leave(const Groups& groups);

  // The groups that wait for rejoin(), in the order of open_groups(). Without destroyed ones.
  Groups suspended() const;
  // All of them are open again: calls are accepted.
  void resumed(const Groups& groups);
  // Throws kMisuse if there are any, because a new group would open what the suspension has closed.
  void refuse_new_group() const;

 private:
  mutable std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> groups_;
};

}  // namespace hccl_like
