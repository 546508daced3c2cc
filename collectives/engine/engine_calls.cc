// Detects and reports ranks that make different calls.
//
// Most mismatches show on the board, or in a message of another call than expected. But such ranks
// may each wait without any message, for example two that both act as the root of a reduce. So a
// rank that has waited for a while reports its call to the ranks that it waits for, and each of
// them compares that with its own call of that number. The waiting rank also checks messages that
// no receive expects.
#include <algorithm>
#include <chrono>
#include <string>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"

namespace hccl_like {
namespace {

// Late ranks are common, and each report costs a frame.
constexpr std::chrono::milliseconds kWaited{200};
constexpr std::chrono::milliseconds kBetweenLooks{100};
// Time for another rank to identify the earlier call.
constexpr std::chrono::milliseconds kDoubt{500};

}  // namespace

void Engine::on_mismatch(int peer, Communicator& communicator, const Link::Mismatch& mismatch) {
  if (mismatch.unreachable) return on_unreachable(peer, communicator);
  uint64_t number = uint64_t{mismatch.tag.sequence} + 1;
  for (const auto& execution : active_)
    if (&execution->operation().communicator() == &communicator &&
        execution->operation().sequence() == mismatch.tag.sequence &&
        execution->channel() == mismatch.tag.channel &&
        (mismatch.tag.channel == 0 || execution->first_lap() == mismatch.tag.lap))
      number = execution->operation().number();
  Disagreement disagreement{
      .sequence = mismatch.tag.sequence,
      .number = number,
      .mine = {communicator.rank(), mismatch.sends ? Claim::kSent : Claim::kExpects,
               mismatch.expected, mismatch.expected_bytes},
      .theirs = {peer, mismatch.sends ? Claim::kExpects : Claim::kSent, mismatch.received,
                 mismatch.received_bytes}};
  if (mismatch.tag.channel == 0 && mismatch.expected != mismatch.received)
    return ask_about(communicator, disagreement);
  if (mismatch.tag.channel != 0)
    disagreement.unseen = "it is a part of more or of fewer elements than are expected in all";
  disagree(communicator, disagreement);
}

void Engine::on_unreachable(int peer, Communicator& communicator) {
  std::string message = "rank " + std::to_string(communicator.rank()) + " of group " +
                        communicator.name() + ": the network card can no longer move a message " +
                        "between a device's memory and rank " + std::to_string(peer);
  if (const Execution* execution = under_way(communicator))
    message += " during " + execution->operation().describe();
  message += "; HCCL_LIKE_FABRIC_DEVICE_MEMORY=0 sends such messages through memory of the host";
  fail(communicator, Error{ErrorCode::kDevice, std::move(message), peer}, /*tell_peers=*/true);
}

void Engine::on_mismatch(const Execution& execution) {
  const BoardMismatch& mismatch = *execution.mismatch();
  const Operation& operation = execution.operation();
  Communicator& communicator = operation.communicator();
  const Claim::Verb verb = mismatch.expected ? Claim::kExchanges : Claim::kPassed;
  disagree(communicator, {.sequence = operation.sequence(),
                          .number = operation.number(),
                          .mine = {communicator.rank(), verb, operation.plan_.fingerprint,
                                   mismatch.expected.value_or(operation.bytes_)},
                          .theirs = {mismatch.rank, verb, mismatch.fingerprint, mismatch.bytes}});
}

// A message identifies only its own call, but the ranks may have differed in an earlier one. Both
// ranks send each other their calls, compare them and report the same error. After kDoubt,
// `disagreement`, or a message that no receive expects, is reported as is.
void Engine::ask_about(Communicator& communicator, Disagreement disagreement) {
  if (communicator.failure() || is_in_doubt(communicator)) return;
  if (auto stray = find_stray(communicator)) disagreement = *stray;
  Link* const link = communicator.identity_.links[static_cast<size_t>(disagreement.theirs.rank)];
  const uint32_t end = disagreement.sequence + 1, told = std::min(end, CallLog::kCalls);
  for (uint32_t sequence = end - told; sequence != end && link != nullptr; ++sequence) {
    const auto call = communicator.called(sequence);
    if (!call) continue;
    link->send_call({.tag = {.communicator = communicator.id(), .sequence = sequence},
                     .fingerprint = call->fingerprint,
                     .bytes = call->bytes});
  }
  if (link == nullptr || link->failure() != nullptr) return disagree(communicator, disagreement);
  link->progress();
  inbox_full_ = true;  // the driver must handle its results before it sleeps
  doubts_.push_back({communicator.id(), disagreement, Deadline::after(kDoubt)});
}

bool Engine::is_in_doubt(const Communicator& communicator) const {
  return std::ranges::find(doubts_, communicator.id(), &Doubt::communicator) != doubts_.end();
}

void Engine::raise_doubts() {
  for (size_t i = 0; i < doubts_.size();) {
    const auto communicator = find(doubts_[i].communicator);
    const bool settled = !communicator || communicator->failure();
    if (!settled && !doubts_[i].until.expired()) {
      ++i;
      continue;
    }
    const Doubt doubt = std::move(doubts_[i]);
    doubts_.erase(doubts_.begin() + static_cast<ptrdiff_t>(i));
    if (!settled) disagree(*communicator, doubt.disagreement);
  }
}

// Reports a pending mismatch in place of another failure; true if there was one.
bool Engine::raise_doubt(Communicator& communicator) {
  const auto found = std::ranges::find(doubts_, communicator.id(), &Doubt::communicator);
  if (found == doubts_.end() || communicator.failure()) return false;
  const Disagreement disagreement = std::move(found->disagreement);
  doubts_.erase(found);
  disagree(communicator, disagreement);
  return true;
}

void Engine::disagree(Communicator& communicator, const Disagreement& disagreement) {
  fail(communicator,
       Error{ErrorCode::kMismatch,
             hccl_like::disagreement(communicator.name(), disagreement.number, disagreement.mine,
                                     disagreement.theirs, config_.call_sites, disagreement.unseen),
             disagreement.theirs.rank},
       /*tell_peers=*/true);
}

void Engine::on_call(Link& link, const CallNotice& call) {
  const auto communicator = find(call.tag.communicator);
  if (!communicator || communicator->failure()) return;
  const int peer = communicator->rank_of(link);
  const auto known = std::ranges::find_if(heard_, [&](const Heard& one) {
    return one.communicator == communicator->id() && one.rank == peer;
  });
  if (known == heard_.end())
    heard_.push_back({communicator->id(), peer, call});
  else
    known->call = call;
  compare_calls();
}

void Engine::look_at_calls() {
  if (active_.empty() && heard_.empty() && doubts_.empty()) return;
  const auto now = Deadline::Clock::now();
  if (now < next_look_at_calls_) return;
  next_look_at_calls_ = now + kBetweenLooks;
  tell_calls();
  compare_calls();
  raise_doubts();
  for (size_t i = 0; i < active_.size();) {
    const Execution& execution = *active_[i];
    Communicator& communicator = execution.operation().communicator();
    ++i;
    if (!execution.exchanges() || execution.age(now) < kWaited) continue;
    if (const auto stray = find_stray(communicator)) ask_about(communicator, *stray);
    if (communicator.failure()) i = 0;  // the list has changed
  }
}

void Engine::tell_calls() {
  const auto now = Deadline::Clock::now();
  for (const auto& execution : active_) {
    if (!execution->exchanges() || execution->age(now) < kWaited) continue;
    for (const int peer : execution->waiting_for()) {
      auto& told = execution->told();
      if (std::ranges::find(told, peer) != told.end()) continue;
      const auto& links = execution->operation().communicator().identity_.links;
      Link* const link = links[static_cast<size_t>(peer)];
      if (link == nullptr || !link->send_call(execution->notice())) continue;
      told.push_back(peer);
      link->progress();
      inbox_full_ = true;  // the driver must handle its results before it sleeps
    }
  }
}

// Compares reports with calls that this rank has made since.
void Engine::compare_calls() {
  for (size_t i = 0; i < heard_.size();) {
    const auto communicator = find(heard_[i].communicator);
    const uint32_t sequence = heard_[i].call.tag.sequence;
    const bool later = communicator && !communicator->failure() &&
                       static_cast<int32_t>(communicator->sequence() - sequence) <= 0;
    if (later) {
      ++i;
      continue;
    }
    const Heard heard = heard_[i];
    heard_.erase(heard_.begin() + static_cast<ptrdiff_t>(i));
    if (!communicator || communicator->failure()) continue;
    const auto own = communicator->called(sequence);
    if (!own || own->fingerprint == heard.call.fingerprint) continue;
    const Disagreement disagreement{
        .sequence = sequence,
        .number = own->shown,
        .mine = {communicator->rank(), Claim::kPassed, own->fingerprint, own->bytes},
        .theirs = {heard.rank, Claim::kPassed, heard.call.fingerprint, heard.call.bytes}};
    if (differ(disagreement.mine, disagreement.theirs, config_.call_sites))
      disagree(*communicator, disagreement);
    else
      ask_about(*communicator, disagreement);
    i = 0;
  }
}

// A message of another call than this rank's call of that number.
std::optional<Engine::Disagreement> Engine::find_stray(const Communicator& communicator) const {
  const auto made = [&](uint32_t sequence) -> std::optional<uint64_t> {
    const auto call = communicator.called(sequence);
    return call ? std::optional(call->fingerprint) : std::nullopt;
  };
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const Link* link = communicator.identity_.links[static_cast<size_t>(peer)];
    if (link == nullptr) continue;
    const auto stray = link->find_stray(communicator.id(), made);
    if (!stray) continue;
    const auto own = communicator.called(stray->tag.sequence);
    return Disagreement{
        .sequence = stray->tag.sequence,
        .number = own ? own->shown : uint64_t{stray->tag.sequence} + 1,
        .mine = {communicator.rank(), Claim::kPassed, stray->expected, own ? own->bytes : 0},
        .theirs = {peer, Claim::kSent, stray->received, stray->received_bytes}};
  }
  return std::nullopt;
}

SharedPlace Engine::place(const Call& call, const std::optional<ExportedRange>& range) {
  if (!range || call.device == nullptr) return {};
  Commons* const commons = mesh_.commons().get();
  return {.range = &*range,
          .device = call.device,
          .index = call.device_index,
          .memory = &peer_memory_,
          .exports = commons == nullptr ? nullptr : &commons->exports(),
          .owner = call.output_owner};
}

void Engine::look_at_memory() {
  if (Commons* const commons = mesh_.commons().get()) commons->exports().look();
  peer_memory_.close_freed();
}

}  // namespace hccl_like
