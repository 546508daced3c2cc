// Judges the outcome of a rank by the faults of the job.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/fault_simulation/sockets/job.h"

namespace hccl_like::fault_simulation::sockets {
namespace {

// How late a rank may be.
constexpr Time kLate = 300 * kMillisecond;
// A rank reads an unproved value of the store again for this time (ProvedStore::kGrace).
constexpr Time kGrace = 2'100 * kMillisecond;
// Stops and silences no longer than this, together, break nothing.
constexpr Time kShortStop = 2'500 * kMillisecond, kShortSilence = 2 * kSecond;
// Another connection comes about after a longer silence.
constexpr Time kShortSilenceOfTcp = 4 * kSecond;
// The same where ranks leave without waiting for others: so long, and no longer, they see to it
// that what they said is taken.
constexpr Time kMerelySlow = 900 * kMillisecond;
// The end of a process may overtake what a transport that notices nothing still has on its way,
// which is waited for so long.
constexpr Time kLastWords = 200 * kMillisecond;
// From the end of a process until the others know it; and from that of a host.
constexpr Time kSpread = kSecond, kMissed = 6 * kSecond;

Time in_time(std::chrono::milliseconds duration) { return duration.count() * kMillisecond; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// "rank 2", "[2]", "[1,2]", but not "rank 12".
bool names(const std::string& text, int rank) {
  const std::string digit = std::to_string(rank);
  for (const char* before : {"rank ", "[", ",", "ranks ", "and "})
    if (contains(text, before + digit)) return true;
  return false;
}

// The rank that an error is about; of an error that another rank told of, the rank that its error
// is about. -1: none.
int blames(const std::string& text) {
  if (contains(text, "timeout: ")) return -1;
  constexpr std::string_view kBefore = " (rank ";
  size_t last = std::string::npos;
  for (const char* code : {"peer lost", "timeout", "aborted", "mismatch", "system"})
    for (size_t found = text.find(code + std::string(kBefore)); found != std::string::npos;
         found = text.find(code + std::string(kBefore), found + 1))
      if (last == std::string::npos || found > last) last = found;
  return last == std::string::npos
             ? -1
             : std::atoi(text.c_str() + text.find(kBefore, last) + kBefore.size());
}

}  // namespace

// By how much the rank was held up.
Time Job::stopped(int rank) const {
  Time sum = 0;
  for (const Mishap& one : mishaps_) {
    if (one.happened < 0) continue;
    if (one.fault == Fault::kStop && one.a == rank) sum += one.lasts;
    if (one.fault == Fault::kLateStore) sum += one.lasts;
  }
  return sum;
}

// Each phase has its time-out.
void Job::check_time(int rank) {
  const Report& report = reports_[static_cast<size_t>(rank)];
  static constexpr const char* kPhases[] = {"meeting", "a call", "leaving", "nothing"};
  Time limit = 0;
  switch (report.phase) {
    case Phase::kHandshake:
      limit = in_time(meeting_) + kGrace;
      break;
    case Phase::kCalling:
      limit = in_time(timeout_);
      break;
    case Phase::kLeaving:
      limit = lingers_ ? 60 * kSecond : 1'100 * kMillisecond;
      break;
    case Phase::kOver:
      return;
  }
  if (now - report.since > limit + kLate + stopped(rank))
    blame(rank, std::string("took too long over ") + kPhases[static_cast<size_t>(report.phase)]);
}

std::vector<int> Job::culprits(const Mishap& mishap) const {
  std::vector<int> all{mishap.a};
  if (mishap.fault == Fault::kSilence || mishap.fault == Fault::kCut ||
      mishap.fault == Fault::kCorrupt)
    all.push_back(mishap.b);
  std::vector<int> of_hosts;
  for (int rank = 0; rank < ranks_; ++rank)
    if (std::ranges::any_of(all, [&](int one) {
          return rank == one ||
                 (mishap.fault != Fault::kKill && mishap.fault != Fault::kAbsent &&
                  mishap.fault != Fault::kStop &&
                  host_[static_cast<size_t>(one)] == host_[static_cast<size_t>(rank)]);
        }))
      of_hosts.push_back(rank);
  return of_hosts;
}

// Whether anything has gone wrong that may break a group.
bool Job::excused() const {
  Time stops = 0, silences = 0;
  bool hard = false, connected = config_.connect == Connecting::kEager && replaces();
  bool cut = false;
  for (const Mishap& one : mishaps_) {
    if (one.happened >= 0) cut |= one.fault == Fault::kCut;
    if (one.happened < 0 || !one.matters) continue;
    if (one.fault == Fault::kStop)
      stops += one.lasts;
    else if (one.fault == Fault::kSilence)
      silences += one.lasts, connected &= !one.while_meeting && !one.while_greeting;
    else
      hard = true;
  }
  if (network_.corrupted_a_wire) hard = true;
  // The first packet of a connection that replaces another is sent again after a second, when a
  // rank that leaves without waiting has gone.
  const Time overtaken = cut ? 0 : config_.transports.front() == "blind" ? kLastWords : kMerelySlow;
  const Time shortest = connected ? kShortSilenceOfTcp : kShortSilence;
  return hard || stops > (lingers_ ? kShortStop : kMerelySlow) ||
         silences > (lingers_ ? shortest : overtaken);
}

void Job::judge(int rank) {
  const Report& report = reports_[static_cast<size_t>(rank)];
  const bool gone =
      !network_.alive(report.process) || network_.stopped(report.process, 200 * kSecond);
  if (!gone && !network_.over(report.process)) return blame(rank, "never ends");
  if (!report.error) return;
  ++tally.errors;
  const Error& error = *report.error;
  const std::string text = to_string(error);
  if (!excused()) return blame(rank, "fails for no reason: " + text);
  Mishap* cause = nullptr;
  for (Mishap& one : mishaps_)
    if (one.happened >= 0) {
      if (cause != nullptr) return;  // two at a time: any of them
      cause = &one;
    }
  if (cause->fault == Fault::kForgery || cause->fault == Fault::kNetwork) return;
  const auto guilty = culprits(*cause);
  const bool own = std::ranges::count(guilty, rank) > 0;
  // A rank that receives from any source waits for no particular peer. A rank that waits for a
  // waiting rank names that rank. A process that ends after it made its wire and before it made its
  // lifeline leaves no sign: TCP may have no path to it.
  if (config_.transports.front() == "blind" && cause->while_meeting) return;
  const bool hails = std::ranges::any_of(
      calls_, [](const CallSpec& call) { return call.kind == CallSpec::Kind::kHail; });
  const bool calling = report.failed_in == Phase::kCalling;
  if (cause->fault == Fault::kStop && (calling || cause->lasts < kForEver)) return;
  if (calling && hails) return;
  if (const int blamed = blames(text);
      blamed >= 0 && !own && std::ranges::count(guilty, blamed) == 0)
    return blame(rank, "blames rank " + std::to_string(blamed) + ", who is well: " + text);
  if (!own && std::ranges::none_of(guilty, [&](int one) { return names(text, one); }))
    return blame(rank, "does not name rank " + std::to_string(guilty.front()) + ": " + text);
  if (!calling) return;
  const Time since = std::max(cause->happened, report.since);
  const Time took = report.failed_at - since;
  // A rank without a connection dials until its connect timeout.
  const Time dialing =
      config_.connect == Connecting::kLazy ? in_time(config_.connect_timeout) + kLate : 0;
  // One end may learn only after the silence that the other end has missed it.
  const Time heals = cause->fault == Fault::kSilence ? std::min(cause->lasts, kMissed) : 0;
  if (cause->fault == Fault::kKill && took > kSpread)
    blame(rank, "was told late, after " + std::to_string(took / kMillisecond) + " ms: " + text);
  if ((cause->fault == Fault::kHostLoss || cause->fault == Fault::kSilence) &&
      took > std::max(kMissed, dialing) + heals)
    blame(rank, "missed it late, after " + std::to_string(took / kMillisecond) + " ms: " + text);
}

void Job::blame(int rank, const std::string& what) {
  if (!blame_.empty()) return;
  blame_ = "rank " + std::to_string(rank) + " " + what + ", at " +
           std::to_string(now / kMicrosecond) + " us, step " + std::to_string(network_.steps());
}

std::string Job::describe() const {
  static constexpr const char* kNames[] = {"kill",       "host loss", "absent",  "stop",
                                           "silence",    "cut",       "corrupt", "restart",
                                           "late store", "forgery",   "network"};
  std::string text = "seed " + std::to_string(seed_) + ": hosts";
  for (const int host : host_) text += " " + std::to_string(host);
  text += config_.connect == Connecting::kLazy ? "; lazy" : "; eager";
  if (config_.transports.front() == "blind")
    text += config_.transports.size() > 1 ? ", blind or tcp" : ", blind";
  if (config_.encrypt) text += ", encrypted";
  if (!config_.secret.empty()) text += ", with a secret";
  if (lingers_) text += ", lingering";
  text += "; " + std::to_string(strangers_.size()) + " strangers; calls:";
  for (const CallSpec& call : calls_) text += " " + call.describe();
  for (const Mishap& one : mishaps_) {
    text += std::string("; ") + kNames[static_cast<size_t>(one.fault)] + " of " +
            std::to_string(one.a) + ", " + std::to_string(one.b) + (one.both ? " both ways" : "") +
            " at step " + std::to_string(one.step) + (one.in_calls ? " after the first call" : "");
    if (one.happened >= 0)
      text += " (" + std::to_string(one.happened / kMicrosecond) + " us, for " +
              std::to_string(one.lasts / kMicrosecond) + " us" +
              (one.matters ? ", which matters)" : ")");
  }
  return text;
}

}  // namespace hccl_like::fault_simulation::sockets
