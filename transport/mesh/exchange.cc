#include "transport/mesh/exchange.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/mesh/report.h"
#include "transport/mesh/roster.h"
#include "transport/security/proved_store.h"
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
constexpr size_t kDigits = 16;  // of a communicator id and of a mark

std::string hexadecimal(uint64_t value) {
  std::string text(kDigits, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

uint64_t parse_communicator(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + kDigits || value == 0)
    throw_error(ErrorCode::kMismatch,
                "rank 0's list of the ranks in the store is malformed; check that no other program "
                "writes there");
  return value;
}

bool is_mark(std::string_view text) {
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Marks an unproved value, kept for the error message.
constexpr char kUnproved = '!';
constexpr size_t kQuoted = 4096;
std::string unproved(std::string_view value) {
  const std::string_view mark = value.substr(0, kDigits);
  const std::string_view record = value.substr(mark.size()).substr(0, kQuoted);
  return (is_mark(mark) ? std::string(mark) : std::string(kDigits, '0')) + kUnproved +
         std::string(record);
}

std::string random_mark() { return hexadecimal(random_u64() | 1); }

class Collector {
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

  void set(int rank, std::string value) { values_[static_cast<size_t>(rank)] = std::move(value); }
  std::span<const std::string> values() const { return values_; }
  int size() const { return static_cast<int>(values_.size()); }

 private:
  ProvedStore& store_;
  const std::string prefix_;
  std::vector<std::string> values_;
};

// Calls `arrived` until true; logs missing ranks periodically; throws kTimeout at the deadline.
void wait_for(Collector& records, Deadline deadline, const std::function<bool(Deadline)>& arrived) {
  const auto start = Deadline::Clock::now();
  Deadline progress = Deadline::after(kExchangeProgressEvery);
  while (!arrived(earliest(deadline, progress))) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count();
    const bool over = deadline.expired();
    const std::string missing = over || progress.expired() ? records.missing() : "";
    // Accept a value that arrived while missing() ran.
    if (over && missing.empty() && arrived(Deadline::after(kGlance))) return;
    if (over)
      throw_error(
          ErrorCode::kTimeout,
          "timed out after " + std::to_string(seconds) + " s waiting for " +
              (missing.empty() ? "rank 0"
                               : "ranks " + missing + " of " + std::to_string(records.size())) +
              " to join the group; check that they were started and use the same store");
    if (!progress.expired()) continue;
    log_info("waiting for ranks " + missing + ", " + std::to_string(seconds) + " s");
    progress = Deadline::after(kExchangeProgressEvery);
  }
}

std::string why_unproved(const JobKey& job) {
  return "its writer has another secret than this rank (" + job.describe() +
         "), or somebody else wrote there; all ranks must have the same HCCL_LIKE_SECRET_FILE or "
         "HCCL_LIKE_SECRET";
}

// The entries of one group in the store. All rounds except the last belong to dead processes.
class GroupEntries {
 public:
  GroupEntries(ProvedStore& store, int rank, int size, const std::string& record, Deadline deadline)
      : store_(store),
        prefix_("hccl_like/" + std::to_string(size) + "/"),
        rank_(rank),
        size_(size),
        mark_(random_mark()),
        own_(mark_ + record),
        deadline_(deadline) {}

  // Rank 0: collects all records and publishes the communicator id, all marks and all records.
  proof::Opened lead() {
    const int64_t round = store_.add(prefix_ + "rounds", 1);
    const std::string below = prefix_ + mark_ + "/";
    store_.set(below + "0", own_);
    store_.set(prefix_ + std::to_string(round), mark_);
    Collector records(store_, below, size_);
    records.set(0, own_);
    int next = 1;
    wait_for(records, deadline_, [&](Deadline until) {
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
    store_.set(below + "all", all);
    return {all, true};
  }

  // All other ranks: waits for the round in which rank 0 has read this process's record.
  proof::Opened join() {
    for (int64_t round = std::max<int64_t>(1, rounds());;) {
      proof::Opened all;
      if (const auto leader = meet_leader(round)) {
        const std::string below = prefix_ + *leader + "/";
        const auto tell = [&] { store_.set(below + std::to_string(rank_), own_); };
        tell();
        Collector records(store_, below, size_);
        records.set(rank_, own_);
        all = wait_in(round, below + "all", &records, tell).value_or(proof::Opened{});
        if (!all.value.empty() && mark_in(all.value) == mark_) return all;
      }
      // The round ended before this process came, or rank 0 opened another one.
      round = std::max(rounds(), all.value.empty() ? round : round + 1);
    }
  }

 private:
  int64_t rounds() { return store_.add(prefix_ + "rounds", 0); }
  std::string_view mark_in(std::string_view all) const {
    const size_t at = kDigits * (1 + static_cast<size_t>(rank_));
    return at < all.size() ? all.substr(at, kDigits) : mark_;  // malformed: the reader reports it
  }

  // Rank 0's mark of this round; empty if rank 0 has opened a later one.
  std::optional<std::string> meet_leader(int64_t round) {
    const std::string key = prefix_ + std::to_string(round);
    const auto leader = wait_in(round, key, nullptr, {});
    if (!leader) return std::nullopt;
    const std::string mark = leader->value.substr(0, kDigits);
    if (leader->proved && is_mark(mark)) return mark;
    // Write the record in spite of the error, so that rank 0 can name this rank in its own error.
    if (is_mark(mark)) store_.set(prefix_ + mark + "/" + std::to_string(rank_), own_);
    throw_error(ErrorCode::kMismatch,
                "rank 0's entry in the store is not authentic: " + why_unproved(store_.job()));
  }

  // Waits for a key; empty once a round after `round` has begun. Calls `meanwhile` periodically.
  std::optional<proof::Opened> wait_in(int64_t round, const std::string& key, Collector* records,
                                       const std::function<void()>& meanwhile) {
    Collector nobody(store_, "", 0);
    std::optional<proof::Opened> value;
    milliseconds look = kFirstLook;
    wait_for(records != nullptr ? *records : nobody, deadline_, [&](Deadline until) {
      try {
        value = store_.get_proved(key, earliest(until, Deadline::after(look)));
        return true;
      } catch (const Exception& exception) {
        if (exception.code() != ErrorCode::kTimeout) throw;
      }
      look = std::min(2 * look, kLongestLook);
      if (meanwhile) meanwhile();
      return rounds() > round;
    });
    return value;
  }

  ProvedStore& store_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  const std::string mark_;
  const std::string own_;
  const Deadline deadline_;
};

std::string value_of(const ProcessRecord& record, const std::string& setting) {
  const auto found = record.settings.find(setting);
  return found == record.settings.end() ? "not set" : found->second;
}

std::string person(const Roster& roster, size_t rank) {
  return person(static_cast<int>(rank), roster.members[rank]);
}

// Every rank compares all ranks with rank 0, so that all reach the same verdict.
void check_settings(const Roster& roster) {
  const auto& first = roster.members[0].settings;
  for (size_t rank = 1; rank < roster.members.size(); ++rank) {
    const auto& its = roster.members[rank].settings;
    if (its == first) continue;
    std::map<std::string, std::string> either = first;
    either.insert(its.begin(), its.end());
    for (const auto& entry : either) {
      const std::string &setting = entry.first, here = value_of(roster.members[0], setting),
                        there = value_of(roster.members[rank], setting);
      if (here != there)
        throw_error(ErrorCode::kMismatch, setting + " is " + here + " on " + person(roster, 0) +
                                              " and " + there + " on " + person(roster, rank) +
                                              "; set it alike on all ranks");
    }
  }
}

// Errors name both ends: the record may be unreadable because the versions differ.
ProcessRecord parse_record(const std::string& stored, size_t member, int rank,
                           const ProcessRecord& self, const JobKey& job) {
  const bool proved = !stored.starts_with(kUnproved);
  // An invalid proof of unknown length follows an unproved record.
  const std::string text = proved ? stored : stored.substr(1, stored.rfind('}'));
  const auto cannot_join = [&](ErrorCode code, const std::string& why) {
    throw_error(code, hccl_like::person(rank, self) + " cannot join " +
                          hccl_like::person(static_cast<int>(member), text) + ": " + why);
  };
  try {
    ProcessRecord record = ProcessRecord::parse(text);
    if (proved) return record;
  } catch (const Exception& exception) {
    cannot_join(exception.code(), exception.error().message);
  }
  cannot_join(ErrorCode::kMismatch,
              "its record in the store is not authentic: " + why_unproved(job));
  return {};
}

std::string_view records_in(std::string_view all, size_t ranks) {
  return all.substr(std::min(all.size(), kDigits * (1 + ranks)));
}

// Searches an unproved list only for a member of another version, with another proof format.
[[noreturn]] void refuse_list(std::string_view all, size_t ranks, int rank,
                              const ProcessRecord& self, const JobKey& job) {
  constexpr size_t kLongest = 1 << 20;
  const std::string_view list = records_in(all, ranks).substr(0, kLongest);
  std::vector<std::string> records;
  try {
    records = unpack_records(list.substr(0, list.rfind(']') + 1), ranks);
  } catch (const Exception&) {
    records.clear();  // no list of another version either
  }
  for (size_t member = 0; member < records.size(); ++member)
    parse_record(records[member], member, rank, self, job);
  throw_error(ErrorCode::kMismatch,
              "rank 0's list of the ranks in the store is not authentic: " + why_unproved(job));
}

}  // namespace

Roster exchange_records(Store& store, const JobKey& job, const ProcessRecord& self, int rank,
                        int size, Deadline deadline, std::string_view scope) {
  if (size < 1 || rank < 0 || rank >= size)
    throw_misuse("rank " + std::to_string(rank) + " is not in 0.." + std::to_string(size - 1));
  ProvedStore proved(store, job, scope);
  GroupEntries entries(proved, rank, size, self.serialize(), deadline);
  const proof::Opened all = rank == 0 ? entries.lead() : entries.join();

  const auto ranks = static_cast<size_t>(size);
  if (!all.proved) refuse_list(all.value, ranks, rank, self, job);
  const std::string_view text = all.value;
  Roster roster;
  roster.communicator = parse_communicator(text.substr(0, kDigits));
  for (const std::string& record : unpack_records(records_in(text, ranks), ranks))
    roster.members.push_back(parse_record(record, roster.members.size(), rank, self, job));
  check_settings(roster);
  return roster;
}

}  // namespace hccl_like
