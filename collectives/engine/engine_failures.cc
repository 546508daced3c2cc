// Failures: affected operations, error texts, and failure reports to peers.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "collectives/topology/group_topology.h"
#include "core/machine/cpu_quota.h"
#include "transport/bootstrap/host.h"

namespace hccl_like {
namespace {

// Liveness check interval of unconnected local peers; the system reports the end of guarded ones.
constexpr std::chrono::milliseconds kLookEvery{10};

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

// "rank 2 of group 0".
std::string self_in(const Communicator& communicator) {
  return "rank " + std::to_string(communicator.number_of(communicator.rank())) + " of group " +
         communicator.name();
}

}  // namespace

void Engine::abort(Communicator& communicator, Error error) {
  ++running_;  // a driver that leaves meanwhile wakes the background thread
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
  for (Link* link : communicator.links())
    if (link != nullptr) link->cancel(communicator.id());
  gave_up_ = owing_ = true;  // also for messages sent in part
  if (first && tell_peers) tell(communicator, to_string(error), nullptr);
  for (size_t i = 0; i < active_.size();) {
    if (&active_[i]->operation().communicator() == &communicator)
      finish(i, error);
    else
      ++i;
  }
  for (const auto& [relative, tell_its_peers] : communicator.relatives()) {
    if (!relative->has_failed()) fail(*relative, error, tell_its_peers);
  }
}

// Sends at once: after the last operation, no thread may drive for a while.
void Engine::tell(Communicator& communicator, std::string_view reason, const Link* but) {
  for (Link* link : communicator.links()) {
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
  if (mismatches_.report_pending(communicator)) return;
  const int number = communicator.number_of(peer);
  std::string message = self_in(communicator) + " lost rank " + std::to_string(number) + " (" +
                        communicator.members()[static_cast<size_t>(peer)].hostname + ")";
  if (const Execution* execution = under_way(communicator))
    message += " during " + execution->operation().describe() + ", " + execution->whereabouts();
  message += ": " + why.message;
  fail(communicator, Error{why.code, std::move(message), number}, /*tell_peers=*/true);
}

void Engine::on_failure(const Execution& execution) {
  const Operation& operation = execution.operation();
  Communicator& communicator = operation.communicator();
  Error error = *execution.failure();
  error.peer = communicator.number_of(error.peer);
  error.message = self_in(communicator) + ": " + operation.describe() + " failed: " + error.message;
  fail(communicator, error, /*tell_peers=*/true);
}

// Affects communicators with running operations; others see it with their next operation.
void Engine::look_at_links(bool idle) {
  for (const auto& owned : mesh_.links()) {
    Link& link = *owned;
    while (auto notice = link.take_abort()) on_abort(link, *notice);
    while (auto call = link.take_call()) mismatches_.on_report(link, *call);
    while (auto mismatch = link.take_mismatch()) on_mismatch(&link, *mismatch);
    // Messages sent before an orderly exit may still be in this process, until nothing moves.
    if (link.failure() != nullptr && (idle || !link.peer_said_goodbye())) on_failure(link);
  }
  while (auto mismatch = self_.take_mismatch()) on_mismatch(nullptr, *mismatch);
}

// `link`: null for a message from this rank to itself.
void Engine::on_mismatch(const Link* link, const Link::Mismatch& mismatch) {
  const auto communicator = groups_.find(mismatch.tag.communicator);
  if (!communicator) return;
  const int peer = link == nullptr ? communicator->rank() : communicator->rank_of(*link);
  if (mismatch.unreachable) return on_unreachable(peer, *communicator);
  mismatches_.on_message(peer, *communicator, mismatch);
}

void Engine::on_unreachable(int peer, Communicator& communicator) {
  peer = communicator.number_of(peer);
  std::string message = self_in(communicator) + ": the network card can no longer move a message " +
                        "between a device's memory and rank " + std::to_string(peer);
  if (const Execution* execution = under_way(communicator))
    message += " during " + execution->operation().describe();
  message += "; HCCL_LIKE_FABRIC_DEVICE_MEMORY=0 sends such messages through memory of the host";
  fail(communicator, Error{ErrorCode::kDevice, std::move(message), peer}, /*tell_peers=*/true);
}

void Engine::on_abort(Link& link, const AbortNotice& notice) {
  const auto communicator = groups_.find_or_keep(link, notice);
  if (!communicator) return;
  const int peer = communicator->rank_of(link);
  if (code_in(notice.reason) != ErrorCode::kMismatch && mismatches_.report_pending(*communicator))
    return;
  // A rank without a connection to the failed rank may have one to this rank. A rank with one may
  // see this rank leave before it gets the reason. Ranks that share a board all know.
  const bool pass_on = !communicator->failure() && !communicator->board();
  Error error = told_by(communicator->number_of(peer), communicator->name(), notice.reason);
  const bool alike = error.told == ErrorCode::kMismatch;  // the same text on all ranks
  if (const Execution* execution = under_way(*communicator); execution != nullptr && !alike)
    error.message += " (told to rank " +
                     std::to_string(communicator->number_of(communicator->rank())) +
                     ", which was in " + execution->operation().describe() + ", " +
                     execution->whereabouts() + ")";
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
                  communicator.links(),
                  [](const Link* one) { return one == nullptr || one->failure() != nullptr; })
            : active_[i]->waits_for(peer);
    if (link.peer_said_goodbye() && !missed) continue;
    lost(communicator, peer, *link.failure());
    i = static_cast<size_t>(-1);  // the list has changed
  }
}

void Engine::count_waits() {
  waits_.look();
  for (const auto& execution : active_) {
    const auto& links = execution->operation().communicator().links();
    for (const int rank : execution->waiting_for())
      if (Link* const link = rank < 0 ? nullptr : links[static_cast<size_t>(rank)])
        waits_.await(link->traffic());
  }
}

void Engine::look_around() {
  count_waits();
  mesh_.poll();
  look_at_deadlines();
  look_at_local_peers();
}

void Engine::look_at_deadlines() {
  const auto now = Deadline::Clock::now();
  for (size_t i = 0; i < active_.size(); ++i) {
    Execution& execution = *active_[i];
    if (execution.deadline().is_never() || execution.deadline().time_point() > now) continue;
    Communicator& communicator = execution.operation().communicator();
    if (mismatches_.report_pending(communicator)) {
      i = static_cast<size_t>(-1);
      continue;
    }
    const auto after =
        std::chrono::duration_cast<std::chrono::milliseconds>(execution.age(now)).count();
    fail(communicator,
         Error{ErrorCode::kTimeout,
               self_in(communicator) + ": " + execution.operation().describe() +
                   " reached its timeout after " + std::to_string(after) + " ms, " +
                   execution.whereabouts() + ". Did every rank make this call" +
                   (may_differ_unseen(communicator.members())
                        ? " on the same kind of device (else set HCCL_LIKE_MIXED_DEVICES=1)"
                        : "") +
                   ", and is every rank alive?"},
         /*tell_peers=*/true);
    i = static_cast<size_t>(-1);
  }
}

// The peer's shared memory shows an orderly exit; the system knows whether the peer died.
void Engine::look_at_local_peers() {
  if (active_.empty() || !mesh_.has_absent()) return;
  const auto now = Deadline::Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  for (const auto& execution : active_) {
    const Communicator& communicator = execution->operation().communicator();
    const auto look = [&](int peer) {
      Link* const link = communicator.links()[static_cast<size_t>(peer)];
      if (link != nullptr) link->look_for_end();
    };
    if (const auto awaited = execution->waiting_for(); !awaited.empty())
      std::ranges::for_each(awaited, look);
    else
      for (int peer = 0; peer < communicator.size(); ++peer) look(peer);
  }
}

void Engine::add(const std::shared_ptr<Communicator>& communicator) {
  const auto& members = communicator->members();
  const auto self = static_cast<size_t>(communicator->rank());
  const auto here = std::ranges::count_if(members, [&](const ProcessRecord& one) {
    return machine_of(one.host) == machine_of(members[self].host);
  });
  static const size_t kCores = [] {
    const auto online = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    return std::min(online, cpu_quota().value_or(online));
  }();
  if (static_cast<size_t>(here) > kCores) crowded_ = true;
  const auto early = groups_.add(communicator->id(), communicator);
  if (!early) return;
  const int peer = communicator->rank_of(*early->link);
  abort(*communicator, told_by(communicator->number_of(peer), communicator->name(), early->reason));
}

void Engine::remove(const Communicator& communicator) { groups_.remove(communicator.id()); }

bool Execution::waits_for(int peer) const {
  const auto peers = waiting_for();
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
}

std::vector<int> Execution::waiting_for() const {
  std::vector<int> peers;
  if (unbound_) return peers;
  if (by_device_ != nullptr) return by_device_->waiting_for();
  if (stage_.holds()) return stage_.waiting_for();
  for (uint32_t i = 0; i < plan_->window && i < slices_.size(); ++i) {
    const Slice& slice = slices_[i];
    if (!slice.active || slice.pending == 0) continue;
    size_t sends = 0, recvs = 0;
    for (const Step& step : plan_->program->schedule.steps(slice.round)) {
      const bool is_send = step.kind == Step::Kind::kSend;
      if (!is_send && step.kind != Step::Kind::kRecv && step.kind != Step::Kind::kRecvReduce)
        continue;
      const Message& message = is_send ? static_cast<const Message&>(slice.sends[sends++])
                                       : static_cast<const Message&>(slice.recvs[recvs++]);
      if (!message.done) peers.push_back(unbound_source(step.peer));
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

CallNotice Execution::notice() const {
  return {
      .tag = {.communicator = operation_->communicator().id(), .sequence = operation_->sequence()},
      .fingerprint = plan_->fingerprint,
      .bytes = operation_->bytes_};
}

std::string Execution::whereabouts() const {
  if (unbound_) return "waiting for a message from any rank";
  const bool in_rounds = by_device_ == nullptr && !stage_.holds();
  std::string text;
  for (uint32_t i = 0; i < plan_->window && text.empty() && in_rounds; ++i) {
    const Slice& slice = slices_[i];
    if (!slice.active) continue;
    text = "in round " + std::to_string(slice.round + 1) + " of " +
           std::to_string(plan_->program->schedule.rounds());
    if (plan_->slices > 1)
      text +=
          " of slice " + std::to_string(slice.number + 1) + " of " + std::to_string(plan_->slices);
  }
  const auto peers = waiting_for();
  if (peers.empty()) return text.empty() ? "before its first round" : text;
  if (text.empty() && in_rounds) text = "before its first round";
  if (!text.empty()) text += ", ";
  text += peers.size() == 1 ? "waiting for rank " : "waiting for ranks ";
  for (size_t i = 0; i < peers.size(); ++i)
    text += (i ? ", " : "") + std::to_string(operation_->communicator().number_of(peers[i]));
  return text;
}

}  // namespace hccl_like
