// Failures: affected operations, error texts, and failure reports to peers.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "transport/bootstrap/host.h"

namespace hccl_like {
namespace {

constexpr size_t kEarlyAborts = 64;

// The error that `peer` reported, in its words ("peer lost (rank 3): ..."), which name the ranks.
Error told_by(int peer, const std::string& group, std::string_view reason) {
  Error error{.code = ErrorCode::kAborted, .peer = peer, .told = code_in(reason)};
  if (!error.told) {
    error.told = ErrorCode::kAborted;
    error.message =
        "rank " + std::to_string(peer) + " gave up group " + group + ": " + std::string(reason);
    return error;
  }
  const size_t colon = reason.find(": ");
  constexpr std::string_view kRank = " (rank ";
  const size_t rank = name(*error.told).size();
  if (reason.substr(rank, kRank.size()) == kRank) {
    const char* const digits = reason.data() + rank + kRank.size();
    std::from_chars(digits, reason.data() + colon, error.peer);
  }
  error.message = reason.substr(colon + 2);
  return error;
}

}  // namespace

void Engine::abort(Communicator& communicator, Error error) {
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({nullptr, communicator.shared_from_this(), std::move(error)});
    inbox_full_ = true;
  }
  std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver) {
    poller_.ring();
    return;
  }
  step();
  leave(std::move(driver), false);
}

void Engine::fail(Communicator& communicator, const Error& error, bool tell_peers) {
  const auto keep = communicator.shared_from_this();  // the last operation may be its last owner
  const bool first = communicator.remember(error);
  self_.cancel(communicator.id());
  for (Link* link : communicator.identity_.links)
    if (link != nullptr) link->cancel(communicator.id());
  gave_up_ = owing_ = true;  // also for messages sent in part
  if (first && tell_peers) tell(communicator, to_string(error), nullptr);
  for (size_t i = 0; i < active_.size();) {
    if (&active_[i]->operation().communicator() == &communicator)
      finish(i, error);
    else
      ++i;
  }
  // Each rank that gets the failure report ends the tied communicator itself.
  if (const auto tied = communicator.tied(); tied && !tied->failure())
    fail(*tied, error, /*tell_peers=*/false);
}

// Sends at once: after the last operation, no thread may drive for a while.
void Engine::tell(Communicator& communicator, std::string_view reason, const Link* but) {
  for (Link* link : communicator.identity_.links) {
    if (link == nullptr || link == but || link->failure() != nullptr) continue;
    link->send_abort(communicator.id(), reason);
    link->progress();
    inbox_full_ = true;  // the driver must handle its results before it sleeps
  }
}

const Execution* Engine::under_way(const Communicator& communicator) const {
  for (const auto& execution : active_)
    if (&execution->operation().communicator() == &communicator) return execution.get();
  return nullptr;
}

void Engine::lost(Communicator& communicator, int peer, const Error& why) {
  if (raise_doubt(communicator)) return;
  std::string message = "rank " + std::to_string(communicator.rank()) + " of group " +
                        communicator.name() + " lost rank " + std::to_string(peer) + " (" +
                        communicator.members()[static_cast<size_t>(peer)].hostname + ")";
  if (const Execution* execution = under_way(communicator))
    message += " during " + execution->operation().describe() + ", " + execution->whereabouts();
  message += ": " + why.message;
  fail(communicator, Error{why.code, std::move(message), peer}, /*tell_peers=*/true);
}

void Engine::on_failure(const Execution& execution) {
  const Operation& operation = execution.operation();
  Communicator& communicator = operation.communicator();
  Error error = *execution.failure();
  error.message = "rank " + std::to_string(communicator.rank()) + " of group " +
                  communicator.name() + ": " + operation.describe() + " failed: " + error.message;
  fail(communicator, error, /*tell_peers=*/true);
}

// Affects communicators with running operations; others see it with their next operation.
void Engine::look_at_links(bool idle) {
  for (const auto& owned : mesh_.links()) {
    Link& link = *owned;
    while (auto notice = link.take_abort()) on_abort(link, *notice);
    while (auto call = link.take_call()) on_call(link, *call);
    while (auto mismatch = link.take_mismatch()) {
      if (const auto communicator = find(mismatch->tag.communicator))
        on_mismatch(communicator->rank_of(link), *communicator, *mismatch);
    }
    // Messages sent before an orderly exit may still be in this process, until nothing moves.
    if (link.failure() != nullptr && (idle || !link.peer_said_goodbye())) on_failure(link);
  }
  while (auto mismatch = self_.take_mismatch()) {
    if (const auto communicator = find(mismatch->tag.communicator))
      on_mismatch(communicator->rank(), *communicator, *mismatch);
  }
}

// A peer may make a group, call and fail before this process has made the group.
std::shared_ptr<Communicator> Engine::find_or_keep(const Link& link, const AbortNotice& notice) {
  std::lock_guard lock(registry_mutex_);
  if (const auto found = registry_.find(notice.communicator); found != registry_.end())
    if (auto communicator = found->second.lock()) return communicator;
  if (early_aborts_.size() == kEarlyAborts) early_aborts_.erase(early_aborts_.begin());
  early_aborts_.push_back({notice.communicator, &link, std::string(notice.reason)});
  return nullptr;
}

void Engine::on_abort(Link& link, const AbortNotice& notice) {
  const auto communicator = find_or_keep(link, notice);
  if (!communicator) return;
  const int peer = communicator->rank_of(link);
  if (code_in(notice.reason) != ErrorCode::kMismatch && raise_doubt(*communicator)) return;
  // A rank without a connection to the failed rank may have one to this rank. A rank with one may
  // see this rank leave before it gets the reason. Ranks that share a board all know.
  const bool pass_on = !communicator->failure() && !communicator->board();
  Error error = told_by(peer, communicator->name(), notice.reason);
  const bool alike = error.told == ErrorCode::kMismatch;  // the same text on all ranks
  if (const Execution* execution = under_way(*communicator); execution != nullptr && !alike)
    error.message += " (told to rank " + std::to_string(communicator->rank()) + ", which was in " +
                     execution->operation().describe() + ", " + execution->whereabouts() + ")";
  fail(*communicator, error, /*tell_peers=*/false);
  if (pass_on) tell(*communicator, notice.reason, &link);
}

void Engine::on_failure(Link& link) {
  for (size_t i = 0; i < active_.size(); ++i) {
    Communicator& communicator = active_[i]->operation().communicator();
    const int peer = communicator.rank_of(link);
    if (peer < 0) continue;
    // An orderly exit fails only operations that wait for the peer, or for any if it was the last.
    const bool missed =
        active_[i]->waits_for_anybody()
            ? std::ranges::all_of(
                  communicator.identity_.links,
                  [](const Link* one) { return one == nullptr || one->failure() != nullptr; })
            : active_[i]->waits_for(peer);
    if (link.peer_said_goodbye() && !missed) continue;
    lost(communicator, peer, *link.failure());
    i = static_cast<size_t>(-1);  // the list has changed
  }
}

void Engine::look_at_deadlines() {
  const auto now = Deadline::Clock::now();
  for (size_t i = 0; i < active_.size(); ++i) {
    Execution& execution = *active_[i];
    if (execution.deadline().is_never() || execution.deadline().time_point() > now) continue;
    Communicator& communicator = execution.operation().communicator();
    if (raise_doubt(communicator)) {
      i = static_cast<size_t>(-1);
      continue;
    }
    const auto after =
        std::chrono::duration_cast<std::chrono::milliseconds>(execution.age(now)).count();
    fail(communicator,
         Error{ErrorCode::kTimeout,
               "rank " + std::to_string(communicator.rank()) + " of group " + communicator.name() +
                   ": " + execution.operation().describe() + " reached its timeout after " +
                   std::to_string(after) + " ms, " + execution.whereabouts() +
                   ". Did every rank make this call, and is every rank alive?"},
         /*tell_peers=*/true);
    i = static_cast<size_t>(-1);
  }
}

std::shared_ptr<Communicator> Engine::find(uint64_t id) const {
  std::lock_guard lock(registry_mutex_);
  const auto found = registry_.find(id);
  return found == registry_.end() ? nullptr : found->second.lock();
}

void Engine::add(const std::shared_ptr<Communicator>& communicator) {
  const auto& members = communicator->members();
  const auto self = static_cast<size_t>(communicator->rank());
  const auto here = std::ranges::count_if(members, [&](const ProcessRecord& one) {
    return machine_of(one.host) == machine_of(members[self].host);
  });
  if (here > sysconf(_SC_NPROCESSORS_ONLN)) crowded_ = true;
  std::optional<EarlyAbort> early;
  {
    std::lock_guard lock(registry_mutex_);
    registry_[communicator->id()] = communicator;
    const auto found =
        std::ranges::find(early_aborts_, communicator->id(), &EarlyAbort::communicator);
    if (found != early_aborts_.end()) {
      early = std::move(*found);
      early_aborts_.erase(found);
    }
  }
  if (!early) return;
  const int peer = communicator->rank_of(*early->link);
  abort(*communicator, told_by(peer, communicator->name(), early->reason));
}

void Engine::remove(uint64_t id) {
  std::lock_guard lock(registry_mutex_);
  registry_.erase(id);
}

}  // namespace hccl_like
