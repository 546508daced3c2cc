#include "process_group/suspension/suspension.h"

#include <algorithm>
#include <thread>
#include <tuple>

#include "core/base/log.h"
#include "device/host/shared_pool.h"
#include "process_group/symmetric/allocator.h"
#include "transport/message/kept_memory.h"

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kLook{1};
// Peers free their parts of symmetric memory at slightly different times.
constexpr std::chrono::milliseconds kUntilFreed{1000};

// The group, unless its destructor has begun and waits for the session's lock.
c10::intrusive_ptr<Backend> held(Backend& backend) {
  auto weak = c10::weak_intrusive_ptr<c10::intrusive_ptr_target>::reclaim(&backend);
  auto strong = weak.lock();
  (void)weak.release();
  return c10::intrusive_ptr<Backend>::reclaim(static_cast<Backend*>(strong.release()));
}

const std::string& name_of(Backend& backend) { return backend.options()->group_name; }

// False at the deadline.
template <class Condition>
bool eventually(Deadline deadline, const Condition& condition) {
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void refuse_mpi(const Config& config) {
  if (std::ranges::find(config.transports, "mpi") != config.transports.end())
    throw_misuse(
        "MPI cannot be closed and started again in one process; leave mpi out of "
        "HCCL_LIKE_TRANSPORTS");
}

void settle(const Suspension::Groups& groups, Deadline deadline) {
  for (const auto& group : groups) {
    if (group->issuer().settle(deadline)) continue;
    const auto calls = group->issuer().held().calls;
    throw_misuse("calls of group '" + name_of(*group) + "' are still running at the deadline (" +
                 std::to_string(calls) + " of them); wait for them on all ranks first");
  }
}

// Each call holds the session until it returns, as does each group, and the caller.
void await_threads(const std::shared_ptr<Session>& session, size_t groups, Deadline deadline) {
  const auto alone = [&] { return static_cast<size_t>(session.use_count()) <= groups + 2; };
  if (!eventually(deadline, alone))
    throw_misuse(
        "another thread of this process is still in a call of a group at the deadline; wait for it "
        "first");
}

void refuse_symmetric_memory(Deadline deadline) {
  const auto no_symmetric = [] {
    sweep_symmetric_memory();
    return SymmetricUse::count() == 0;
  };
  const Deadline until = earliest(deadline, Deadline::after(kUntilFreed));
  if (!eventually(until, no_symmetric))
    throw_misuse(
        "symmetric memory is in use, which other ranks map; free its tensors and their rendezvous "
        "on all ranks first");
}

}  // namespace

Suspension::Groups Suspension::open_groups(Session& session) {
  Groups groups;
  session.each([&](Backend& backend) {
    if (auto group = held(backend)) groups.push_back(std::move(group));
  });
  std::ranges::sort(groups, {},
                    [](const auto& group) { return std::tuple(-group->getSize(), group->id()); });
  return groups;
}

void Suspension::hold(const Groups& groups, const std::shared_ptr<Session>& session,
                      Deadline deadline) {
  Groups holding;
  try {
    if (session) refuse_mpi(session->runtime().config());
    for (const auto& group : groups) {
      group->issuer().suspend();
      holding.push_back(group);
    }
    settle(groups, deadline);
    if (session) await_threads(session, groups.size(), deadline);
    for (const auto& group : groups) group->issuer().release_staging();
    KeptMemory::of_process().sweep();
    refuse_symmetric_memory(deadline);
  } catch (...) {
    release(holding);
    throw;
  }
}

void Suspension::release(const Groups& groups) {
  for (const auto& group : groups) group->issuer().undo_suspend();
}

void Suspension::leave(const Groups& groups) {
  for (const auto& group : groups) group->leave_session();
  if (!groups.empty()) {  // else the groups of an earlier suspension, if any, stay suspended
    std::lock_guard lock(mutex_);
    groups_.assign(groups.begin(), groups.end());
  }
  close_log_file();
  SharedPool::of_process().make_private();
}

Suspension::Groups Suspension::suspended() const {
  std::lock_guard lock(mutex_);
  Groups groups;
  for (const auto& weak : groups_) {
    auto group = weak.lock();
    if (group && group->issuer().suspended()) groups.push_back(std::move(group));
  }
  return groups;
}

void Suspension::resumed(const Groups& groups) {
  try {
    SharedPool::of_process().share();
  } catch (const Exception& error) {  // out of memory
    log_warn(std::string("tensors that peers could map are ordinary now: ") + error.what());
  }
  {
    std::lock_guard lock(mutex_);
    groups_.clear();
  }
  release(groups);
}

void Suspension::refuse_new_group() const {
  if (!suspended().empty())
    throw_misuse(
        "the process groups of this process are suspended; call hccl_like.resume() on all ranks "
        "first");
}

}  // namespace hccl_like
