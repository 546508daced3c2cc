#include "collectives/engine/mismatch_detector.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "collectives/call/fingerprint.h"
#include "collectives/engine/communicator.h"
#include "collectives/topology/group_topology.h"

namespace hccl_like {
namespace {

// Late ranks are common, and each report costs a frame.
constexpr std::chrono::milliseconds kWaited{200};
constexpr std::chrono::milliseconds kBetweenLooks{100};
// Time for another rank to identify the earlier call.
constexpr std::chrono::milliseconds kIdentified{500};

// Of a message whose memory is shown first, only the least size is known here.
Claim claim_of_message(int rank, bool sends, uint64_t fingerprint, size_t bytes) {
  if (shows_memory(fingerprint))
    return {rank, sends ? Claim::kSentLarge : Claim::kExpectsLarge, fingerprint, kLeastOfStreams};
  return {rank, sends ? Claim::kSent : Claim::kExpects, fingerprint, bytes};
}

// Ranks whose devices differ make or cut a call in different ways.
constexpr std::string_view kUnlikeDevices =
    ". If they do, and their devices differ, set HCCL_LIKE_MIXED_DEVICES=1 on one rank";
bool may_be_cut_unlike(const Claim& mine, const Claim& theirs) {
  const auto collective = static_cast<Collective>(mine.fingerprint & 15);
  const bool any_size = collective == Collective::kAllToAll || collective == Collective::kGather ||
                        collective == Collective::kScatter ||
                        (collective == Collective::kAllReduce && mine.bytes == theirs.bytes);
  return describe_fingerprint(mine.fingerprint) == describe_fingerprint(theirs.fingerprint) &&
         (any_size || std::max(mine.bytes, theirs.bytes) >= kLeastOfStreams);
}

}  // namespace

void MismatchDetector::on_message(int peer, Communicator& communicator,
                                  const Link::Mismatch& mismatch) {
  uint64_t number = uint64_t{mismatch.tag.sequence} + 1;
  for (const auto& execution : engine_.active)
    if (&execution->operation().communicator() == &communicator &&
        execution->operation().sequence() == mismatch.tag.sequence &&
        execution->channel() == mismatch.tag.channel &&
        (mismatch.tag.channel == 0 || execution->first_slice() == mismatch.tag.slice))
      number = execution->operation().number();
  Disagreement disagreement{.sequence = mismatch.tag.sequence,
                            .number = number,
                            .mine = claim_of_message(communicator.rank(), mismatch.sends,
                                                     mismatch.expected, mismatch.expected_bytes),
                            .theirs = claim_of_message(peer, !mismatch.sends, mismatch.received,
                                                       mismatch.received_bytes)};
  if (mismatch.tag.channel == 0 && mismatch.expected != mismatch.received)
    return ask_about(communicator, disagreement);
  if (mismatch.tag.channel != 0)
    disagreement.unseen = "it is a part of more or of fewer elements than are expected in all";
  report(communicator, disagreement);
}

void MismatchDetector::on_board(const Execution& execution) {
  const BoardMismatch& mismatch = *execution.mismatch();
  const Operation& operation = execution.operation();
  Communicator& communicator = operation.communicator();
  const Claim::Verb verb = mismatch.expected ? Claim::kExchanges : Claim::kPassed;
  report(communicator, {.sequence = operation.sequence(),
                        .number = operation.number(),
                        .mine = {communicator.rank(), verb, operation.fingerprint(),
                                 mismatch.expected.value_or(operation.bytes())},
                        .theirs = {mismatch.rank, verb, mismatch.fingerprint, mismatch.bytes}});
}

// A message identifies only its own call, but the ranks may have differed in an earlier one. Both
// ranks send each other their calls, compare them and report the same error. After kIdentified,
// `disagreement`, or a message that no receive expects, is reported as is.
void MismatchDetector::ask_about(Communicator& communicator, Disagreement disagreement) {
  const bool asked =
      std::ranges::find(pending_, communicator.id(), &Pending::communicator) != pending_.end();
  if (communicator.failure() || asked) return;
  if (auto stray = find_stray(communicator)) disagreement = *stray;
  Link* const link = communicator.links()[static_cast<size_t>(disagreement.theirs.rank)];
  const uint32_t end = disagreement.sequence + 1, told = std::min(end, CallLog::kCalls);
  for (uint32_t sequence = end - told; sequence != end && link != nullptr; ++sequence) {
    const auto call = communicator.called(sequence);
    if (!call) continue;
    link->send_call({.tag = {.communicator = communicator.id(), .sequence = sequence},
                     .fingerprint = call->fingerprint,
                     .bytes = call->bytes});
  }
  if (link == nullptr || link->failure() != nullptr) return report(communicator, disagreement);
  link->progress();
  engine_.keep_awake();
  pending_.push_back({communicator.id(), disagreement, Deadline::after(kIdentified)});
}

void MismatchDetector::report_expired() {
  for (size_t i = 0; i < pending_.size();) {
    const auto communicator = engine_.groups.find(pending_[i].communicator);
    const bool settled = !communicator || communicator->failure();
    if (!settled && !pending_[i].until.expired()) {
      ++i;
      continue;
    }
    const Pending expired = std::move(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    if (!settled) report(*communicator, expired.disagreement);
  }
}

bool MismatchDetector::report_pending(Communicator& communicator) {
  const auto found = std::ranges::find(pending_, communicator.id(), &Pending::communicator);
  if (found == pending_.end() || communicator.failure()) return false;
  const Disagreement disagreement = std::move(found->disagreement);
  pending_.erase(found);
  report(communicator, disagreement);
  return true;
}

void MismatchDetector::report(Communicator& communicator, const Disagreement& disagreement) {
  Claim mine = disagreement.mine, theirs = disagreement.theirs;
  for (Claim* const claim : {&mine, &theirs}) claim->rank = communicator.number_of(claim->rank);
  std::string message = hccl_like::disagreement(communicator.name(), disagreement.number, mine,
                                                theirs, engine_.call_sites, disagreement.unseen);
  if (may_be_cut_unlike(mine, theirs) && may_differ_unseen(communicator.members()))
    message += kUnlikeDevices;
  engine_.fail(communicator, Error{ErrorCode::kMismatch, std::move(message), theirs.rank});
}

void MismatchDetector::on_report(Link& link, const CallNotice& call) {
  const auto communicator = engine_.groups.find(call.tag.communicator);
  if (!communicator || communicator->failure()) return;
  const int peer = communicator->rank_of(link);
  const auto known = std::ranges::find_if(reports_, [&](const Report& one) {
    return one.communicator == communicator->id() && one.rank == peer;
  });
  if (known == reports_.end())
    reports_.push_back({communicator->id(), peer, call});
  else
    known->call = call;
  compare_reports();
}

void MismatchDetector::look() {
  if (engine_.active.empty() && reports_.empty() && pending_.empty()) return;
  const auto now = Deadline::Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  send_reports();
  compare_reports();
  report_expired();
  for (size_t i = 0; i < engine_.active.size();) {
    const Execution& execution = *engine_.active[i];
    Communicator& communicator = execution.operation().communicator();
    ++i;
    if (!execution.exchanges() || execution.age(now) < kWaited) continue;
    if (const auto stray = find_stray(communicator)) ask_about(communicator, *stray);
    if (communicator.failure()) i = 0;  // the list has changed
  }
}

void MismatchDetector::send_reports() {
  const auto now = Deadline::Clock::now();
  for (const auto& execution : engine_.active) {
    if (!execution->exchanges() || execution->age(now) < kWaited) continue;
    for (const int peer : execution->waiting_for()) {
      auto& told = execution->told();
      if (std::ranges::find(told, peer) != told.end()) continue;
      const auto& links = execution->operation().communicator().links();
      Link* const link = links[static_cast<size_t>(peer)];
      if (link == nullptr || !link->send_call(execution->notice())) continue;
      told.push_back(peer);
      link->progress();
      engine_.keep_awake();
    }
  }
}

// Compares reports with calls that this rank has made since.
void MismatchDetector::compare_reports() {
  for (size_t i = 0; i < reports_.size();) {
    const auto communicator = engine_.groups.find(reports_[i].communicator);
    const uint32_t sequence = reports_[i].call.tag.sequence;
    const bool later = communicator && !communicator->failure() &&
                       static_cast<int32_t>(communicator->sequence() - sequence) <= 0;
    if (later) {
      ++i;
      continue;
    }
    const Report reported = reports_[i];
    reports_.erase(reports_.begin() + static_cast<ptrdiff_t>(i));
    if (!communicator || communicator->failure()) continue;
    const auto own = communicator->called(sequence);
    if (!own || own->fingerprint == reported.call.fingerprint) continue;
    const Disagreement disagreement{
        .sequence = sequence,
        .number = own->shown,
        .mine = {communicator->rank(), Claim::kPassed, own->fingerprint, own->bytes},
        .theirs = {reported.rank, Claim::kPassed, reported.call.fingerprint, reported.call.bytes}};
    if (differ(disagreement.mine, disagreement.theirs, engine_.call_sites))
      report(*communicator, disagreement);
    else
      ask_about(*communicator, disagreement);
    i = 0;
  }
}

// A message of another call than this rank's call of that number.
std::optional<MismatchDetector::Disagreement> MismatchDetector::find_stray(
    const Communicator& communicator) const {
  const auto made = [&](uint32_t sequence) -> std::optional<uint64_t> {
    const auto call = communicator.called(sequence);
    return call ? std::optional(call->fingerprint) : std::nullopt;
  };
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const Link* link = communicator.links()[static_cast<size_t>(peer)];
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

}  // namespace hccl_like
