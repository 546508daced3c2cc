#include "transport/mesh/group_entries.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/mesh/roster.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kExchangeProgressEvery{10'000};
constexpr milliseconds kGlance{1};          // per missing record
constexpr milliseconds kGlanceBudget{200};  // for all missing records
// Interval at which a waiting rank checks for a new round of rank 0; doubles.
constexpr milliseconds kFirstLook{1'000}, kLongestLook{8'000};
constexpr int kMostNamed = 32;
// After so many, a rank that hands the list down leaves the other ranks below it to the store.
constexpr int kMostFailedChildren = 64;
constexpr size_t kDigits = kMarkDigits;
// Rank 0 adds this to the counter of a round that it completes; a rank that gives up adds 1. The
// first of them decides whether the round counts.
constexpr int64_t kComplete = int64_t{1} << 32;
// Rank 0 writes `all` in its next request after that. A rank that gave up too late waits so long
// for `all`, which never comes if rank 0 dies between the two requests.
constexpr milliseconds kPublishing{1'000};

std::string hexadecimal(uint64_t value) {
  std::string text(kDigits, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

bool is_mark(std::string_view text) {
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

constexpr size_t kQuoted = 4096;
std::string unproved(std::string_view value) {
  const std::string_view mark = value.substr(0, kDigits);
  const std::string_view record = value.substr(mark.size()).substr(0, kQuoted);
  return (is_mark(mark) ? std::string(mark) : std::string(kDigits, '0')) + kUnproved +
         std::string(record);
}

std::string random_mark() { return hexadecimal(random_u64() | 1); }

// A list in which no rank finds its mark.
std::string no_marks(int size) {
  return std::string(kDigits * (1 + static_cast<size_t>(size)), '0');
}

}  // namespace

class GroupEntries::Collector {
 public:
  Collector(ProvedStore& store, std::string prefix, int size)
      : store_(store), prefix_(std::move(prefix)), values_(static_cast<size_t>(size)) {}

  bool collect(int rank, Deadline deadline) {
    std::string& value = values_[static_cast<size_t>(rank)];
    if (!value.empty()) return true;
    try {
      const auto record = store_.get_proved(prefix_ + std::to_string(rank), deadline);
      value = record.proved ? record.value : unproved(record.value);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout) throw;
    }
    return !value.empty();
  }

  // Checks for all records without waiting, and lists the missing ranks: "[3,7]".
  std::string missing() {
    const Deadline budget = Deadline::after(kGlanceBudget);
    std::string names;
    int count = 0;
    for (int rank = 0; rank < static_cast<int>(values_.size()); ++rank) {
      if (!values_[static_cast<size_t>(rank)].empty()) continue;
      if (!budget.expired() && collect(rank, Deadline::after(kGlance))) continue;
      if (++count > kMostNamed) continue;
      names += (names.empty() ? "" : ",") + std::to_string(rank);
    }
    if (count == 0) return "";
    return "[" + names +
           (count > kMostNamed ? ",... " + std::to_string(count - kMostNamed) + " more]" : "]");
  }

  // Calls `arrived` until true; logs missing ranks periodically; throws kTimeout at the deadline.
  // `start`: when the caller began to wait.
  void wait_for(Deadline::Clock::time_point start, Deadline deadline,
                const std::function<bool(Deadline)>& arrived);
  void set(int rank, std::string value) { values_[static_cast<size_t>(rank)] = std::move(value); }
  std::span<const std::string> values() const { return values_; }
  int size() const { return static_cast<int>(values_.size()); }

 private:
  ProvedStore& store_;
  const std::string prefix_;
  std::vector<std::string> values_;
};

void GroupEntries::Collector::wait_for(Deadline::Clock::time_point start, Deadline deadline,
                                       const std::function<bool(Deadline)>& arrived) {
  Deadline progress = Deadline::after(kExchangeProgressEvery);
  while (!arrived(earliest(deadline, progress))) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count();
    const bool over = deadline.expired();
    const std::string missing_ranks = over || progress.expired() ? missing() : "";
    // Accept a value that arrived while missing() ran.
    if (over && missing_ranks.empty() && arrived(Deadline::after(kGlance))) return;
    if (over)
      throw_error(
          ErrorCode::kTimeout,
          "timed out after " + std::to_string(seconds) + " s waiting for " +
              (missing_ranks.empty() ? "rank 0"
                                     : "ranks " + missing_ranks + " of " + std::to_string(size())) +
              " to join the group; check that they were started and use the same store");
    if (!progress.expired()) continue;
    log_info("waiting for ranks " + missing_ranks + ", " + std::to_string(seconds) + " s");
    progress = Deadline::after(kExchangeProgressEvery);
  }
}

std::string why_unproved(const JobKey& job) {
  return "its writer has another secret than this rank (" + job.describe() +
         "), or somebody else wrote there; all ranks must have the same HCCL_LIKE_SECRET_FILE or "
         "HCCL_LIKE_SECRET";
}

GroupEntries::GroupEntries(ProvedStore& store, RosterCourier* courier, int rank, int size,
                           const std::string& record, Deadline deadline, std::string mark)
    : store_(store),
      courier_(courier),
      prefix_("hccl_like/" + std::to_string(size) + "/"),
      rank_(rank),
      size_(size),
      record_(record),
      mark_(mark.empty() ? random_mark() : std::move(mark)),
      deadline_(deadline) {}

GroupEntries::~GroupEntries() { follow(""); }

proof::Opened GroupEntries::lead() {
  for (;; mark_ = random_mark()) {
    const int64_t round = store_.add(prefix_ + "rounds", 1);
    // Ranks that wait for the list of the dead round read it, and move on to this round.
    if (!leader_.empty()) store_.set(below() + "all", no_marks(size_));
    leader_ = mark_;
    const std::string own = mark_ + record_;
    store_.set(below() + "0", own);
    store_.set(prefix_ + std::to_string(round), mark_);
    Collector records(store_, below(), size_);
    records.set(0, own);
    int next = 1;
    records.wait_for(start_, deadline_, [&](Deadline until) {
      while (next < size_ && records.collect(next, until)) ++next;
      return next == size_;
    });
    std::string all = random_mark();
    std::vector<std::string> bare;
    for (const std::string& value : records.values()) {
      all += value.substr(0, kDigits);
      bare.push_back(value.substr(std::min(value.size(), kDigits)));
    }
    all += pack_records(bare);
    if (store_.add(below() + "complete", kComplete) != kComplete) continue;
    store_.set(below() + "all", all);
    return {all, true};
  }
}

proof::Opened GroupEntries::join() {
  for (int64_t round = std::max<int64_t>(1, rounds());;) {
    std::optional<proof::Opened> all;
    if (const auto leader = meet_leader(round)) {
      follow(*leader);
      const std::string own = mark_ + record_;
      const auto tell = [&] { store_.set(below() + std::to_string(rank_), own); };
      tell();
      Collector records(store_, below(), size_);
      records.set(rank_, own);
      const Fetch fetch = courier_ != nullptr ? from_tree() : from_store(below() + "all");
      try {
        all = wait_in(round, fetch, &records, tell);
      } catch (const Exception& exception) {
        if (exception.code() != ErrorCode::kTimeout || !is_too_late_to_leave()) throw;
        all = from_store(below() + "all")(Deadline::after(kPublishing));
        if (!all || mark_in(all->value) != mark_) throw;
      }
      if (all && (!all->proved || mark_in(all->value) == mark_)) return *all;
    }
    // The round ended before this process came, or rank 0 opened another one.
    round = std::max(rounds(), all ? round + 1 : round);
  }
}

// Rank 0 goes on without this rank, unless it has completed the round already.
bool GroupEntries::is_too_late_to_leave() {
  return store_.add(below() + "complete", 1) > kComplete;
}

void GroupEntries::hand_down(const std::string& all) {
  std::vector<int> next = roster_children(rank_, size_);
  if (next.empty()) return;
  int failed = 0;
  const std::string list = store_.seal(below() + "all", all);
  while (!next.empty() && failed < kMostFailedChildren && !deadline_.expired()) {
    std::vector<RosterChild> children;
    std::map<int, std::string> problems;
    for (const int rank : std::exchange(next, {})) try {
        children.push_back({rank, record_of(rank)});
      } catch (const Exception& exception) {
        problems.emplace(rank, exception.error().message);
      }
    problems.merge(courier_->hand(leader_, list, children, deadline_));
    for (const auto& [rank, why] : problems) {
      ++failed;
      log_warn("rank " + std::to_string(rank_) + " cannot give the list of ranks to rank " +
               std::to_string(rank) + ", which will read it from the store: " + why);
      std::ranges::copy(roster_children(rank, size_), std::back_inserter(next));
    }
  }
}

void GroupEntries::follow(const std::string& leader) {
  if (courier_ != nullptr && !leader_.empty()) courier_->forget(leader_);
  leader_ = leader;
  if (courier_ != nullptr && !leader_.empty()) courier_->expect(leader_);
}

std::string_view GroupEntries::mark_in(std::string_view all) const {
  const size_t at = kDigits * (1 + static_cast<size_t>(rank_));
  return at < all.size() ? all.substr(at, kDigits) : mark_;  // malformed: the reader reports it
}

// Rank 0's mark of this round; empty if rank 0 has opened a later one.
std::optional<std::string> GroupEntries::meet_leader(int64_t round) {
  const auto leader = wait_in(round, from_store(prefix_ + std::to_string(round)), nullptr, {});
  if (!leader) return std::nullopt;
  const std::string mark = leader->value.substr(0, kDigits);
  if (leader->proved && is_mark(mark)) return mark;
  // Write the record in spite of the error, so that rank 0 can name this rank in its own error.
  if (is_mark(mark)) store_.set(prefix_ + mark + "/" + std::to_string(rank_), mark_ + record_);
  throw_error(ErrorCode::kMismatch,
              "rank 0's entry in the store is not authentic: " + why_unproved(store_.job()));
}

// Of a rank whose record rank 0 has read.
ProcessRecord GroupEntries::record_of(int rank) {
  const auto stored = store_.get_proved(below() + std::to_string(rank), deadline_);
  if (!stored.proved) throw_error(ErrorCode::kMismatch, "its record is not authentic");
  return ProcessRecord::parse(stored.value.substr(std::min(stored.value.size(), kDigits)));
}

GroupEntries::Fetch GroupEntries::from_store(const std::string& key) {
  return [this, key](Deadline until) -> std::optional<proof::Opened> {
    try {
      return store_.get_proved(key, until);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout) throw;
    }
    return std::nullopt;
  };
}

GroupEntries::Fetch GroupEntries::from_tree() {
  return
      [this, give_up = Deadline::never()](Deadline until) mutable -> std::optional<proof::Opened> {
        if (const std::string list = courier_->receive(leader_, until); !list.empty()) {
          proof::Opened all = store_.open(below() + "all", list);
          if (all.proved) return all;
          log_warn("ignored a list of ranks that is not authentic");
        }
        if (give_up.is_never() && store_.add(below() + "complete", 0) >= kComplete)
          give_up = Deadline::after(courier_->grace());
        if (!give_up.expired()) return std::nullopt;
        log_warn("no rank brings the list of ranks; rank " + std::to_string(rank_) +
                 " reads it from the store");
        return from_store(below() + "all")(deadline_);
      };
}

// Waits for a value; empty once a round after `round` has begun. Calls `meanwhile` periodically.
std::optional<proof::Opened> GroupEntries::wait_in(int64_t round, const Fetch& fetch,
                                                   Collector* records,
                                                   const std::function<void()>& meanwhile) {
  Collector nobody(store_, "", 0);
  std::optional<proof::Opened> value;
  milliseconds look = kFirstLook;
  (records != nullptr ? *records : nobody).wait_for(start_, deadline_, [&](Deadline until) {
    value = fetch(earliest(until, Deadline::after(look)));
    if (value) return true;
    look = std::min(2 * look, kLongestLook);
    if (meanwhile) meanwhile();
    return rounds() > round;
  });
  return value;
}

}  // namespace hccl_like
