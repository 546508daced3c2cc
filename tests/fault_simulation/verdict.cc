// Judges the outcome of a call by the faults of the job.
#include <algorithm>

#include "tests/fault_simulation/job.h"

namespace hccl_like::fault_simulation {
namespace {

// From a failure until the last survivor knows: whoever dials is refused for a while, and tells the
// others.
constexpr Time kSpread = kSecond;
// How late a rank may be on a time-out.
constexpr Time kLate = 200 * kMillisecond;
// A rank that stops for less is only slow: so long, and no longer, one that leaves waits for it to
// take what it was told.
constexpr Time kMerelySlow = 900 * kMillisecond;

// How long a connection is tried (World).
constexpr Time kDialsFor = 10 * kSecond;

constexpr const char* kTimedOut = "reached its timeout after";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

bool Job::concerns(const Mishap& mishap, int group) const {
  const auto& members = members_[index(group)];
  const auto in = [&](int rank) { return std::ranges::count(members, rank) > 0; };
  if (mishap.happened < 0) return false;
  switch (mishap.fault) {
    case Fault::kCut:
      return in(mishap.a) && in(mishap.b);
    case Fault::kSilence:
      return in(mishap.a) && in(mishap.b) && mishap.lasts > kMerelySlow;
    case Fault::kAbort:
    case Fault::kDisagree:
      return group == mishap.group;
    case Fault::kStop:
      return in(mishap.a) && mishap.lasts > kMerelySlow;
    case Fault::kCrash:
    case Fault::kLeave:
      return in(mishap.a);
  }
  return false;
}

bool Job::may_fail(int group) const {
  return std::ranges::any_of(mishaps_, [&](const Mishap& one) { return concerns(one, group); });
}

bool Job::may_time_out(int group) const {
  return std::ranges::any_of(mishaps_, [&](const Mishap& one) {
    // A rank that receives from any source waits for no particular peer, and need not be connected
    // to one.
    const bool hails = std::ranges::any_of(calls_[index(group)], [](const CallSpec& call) {
      return call.kind == CallSpec::Kind::kHail;
    });
    // A connection that is tried for so long may be begun so late, after another mishap, that the
    // call's time is up first.
    const bool dials = one.fault == Fault::kSilence && one.lasts > kDialsFor && mishaps_.size() > 1;
    return concerns(one, group) && (one.fault == Fault::kStop || dials || hails);
  });
}

// Whether ranks of the group may be in a call of another one until that runs into its time-out, and
// the group's with it.
bool Job::held_up(int group) const {
  for (int other = 0; other < kGroups; ++other) {
    if (other == group || !may_time_out(other)) continue;
    for (const int rank : members_[index(other)])
      if (std::ranges::count(members_[index(group)], rank) > 0) return true;
  }
  return false;
}

void Job::judge(int rank, int group, const Operation& operation) {
  const Error* error = operation.error();
  const auto started = operation.started(), finished = operation.finished();
  const Time begun = started.time_since_epoch().count() - kBegin;
  const Time ended = finished.time_since_epoch().count() - kBegin;
  Time late = kLate, last = begun;
  bool silent = false;
  for (const Mishap& one : mishaps_) {
    if (one.happened < 0) continue;
    last = std::max(last, one.happened);
    if (one.fault == Fault::kStop) late += one.lasts;
    silent |= one.fault == Fault::kSilence;
  }
  const Communicator& communicator = operation.communicator();
  if (ended - begun > communicator.timeout().count() * kMillisecond + late)
    blame(rank, group, operation.describe() + " ends long after its time-out");
  if (error == nullptr) return;
  any_error_ = true;
  ++tally.errors;
  const std::string text = operation.describe() + ": " + to_string(*error);
  if (!may_fail(group) && held_up(group) && contains(text, kTimedOut)) return;
  if (!may_fail(group)) return blame(rank, group, "fails for no reason: " + text);
  if (may_time_out(group)) return;
  if (contains(error->message, kTimedOut))
    return blame(rank, group, "ran into a time-out that nothing explains: " + text);
  if (ended - last > kSpread + late + (silent ? 15 * kSecond : 0))
    return blame(rank, group, "was told late: " + text);
  if (mishaps_.size() > 1) return;
  const Mishap& cause = mishaps_.front();
  const auto named = [&](int culprit) {
    const auto& members = members_[index(group)];
    const auto at = std::ranges::find(members, culprit) - members.begin();
    return contains(text, "rank " + std::to_string(at));
  };
  if (cause.fault == Fault::kCrash && !named(cause.a))
    blame(rank, group, "does not name rank " + std::to_string(cause.a) + ": " + text);
  if (cause.fault == Fault::kDisagree && !contains(text, "disagree"))
    blame(rank, group, "does not tell of the disagreement: " + text);
  if (cause.fault == Fault::kAbort && !contains(text, "enough of it"))
    blame(rank, group, "does not tell why the group was given up: " + text);
}

void Job::blame(int rank, int group, const std::string& what) {
  if (!blame_.empty()) return;
  blame_ = "rank " + std::to_string(rank) + (group == 0 ? "" : " (in the group of some)") + " " +
           what + ", at " + std::to_string(now / kMicrosecond) + " us, turn " +
           std::to_string(turns_);
}

std::string Job::describe() const {
  static constexpr const char* kFaults[] = {"crash", "stop",     "cut",  "silence",
                                            "abort", "disagree", "leave"};
  std::string text = "seed " + std::to_string(seed_) + ": " + std::to_string(ranks_) + " ranks";
  for (int group = 0; group < kGroups; ++group) {
    if (members_[index(group)].empty()) continue;
    text += "; group";
    for (const int rank : members_[index(group)]) text += " " + std::to_string(rank);
    text += ":";
    for (const CallSpec& call : calls_[index(group)]) text += " " + call.describe();
  }
  for (const Mishap& one : mishaps_) {
    text += std::string("; ") + kFaults[static_cast<size_t>(one.fault)] + " of " +
            std::to_string(one.a) + ", " + std::to_string(one.b) + ", group " +
            std::to_string(one.group) + " at turn " + std::to_string(one.turn);
    if (one.happened >= 0)
      text += " (" + std::to_string(one.happened / kMicrosecond) + " us, for " +
              std::to_string(one.lasts / kMicrosecond) + " us)";
  }
  return text;
}

}  // namespace hccl_like::fault_simulation
