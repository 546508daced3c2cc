#include "transport/mesh_exchange.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <span>

#include "core/error.h"
#include "core/log.h"
#include "transport/bootstrap_random.h"
#include "transport/mesh_report.h"
#include "transport/mesh_roster.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{10'000};
constexpr milliseconds kGlance{1};          // how long to look for one record of many
constexpr milliseconds kGlanceBudget{200};  // for all of them
constexpr int kMostNamed = 32;
constexpr size_t kCommunicatorDigits = 16;

std::string hexadecimal(uint64_t value) {
  std::string text(kCommunicatorDigits, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

uint64_t parse_communicator(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + kCommunicatorDigits || value == 0)
    throw_error(ErrorCode::kMismatch,
                "rank 0's list of the ranks in the store is malformed; check that no other program "
                "writes there");
  return value;
}

// The records as they come in.
class Collector {
 public:
  Collector(Store& store, std::string prefix, int size)
      : store_(store), prefix_(std::move(prefix)), values_(static_cast<size_t>(size)) {}

  // True once rank's record is here.
  bool collect(int rank, Deadline deadline) {
    std::string& value = values_[static_cast<size_t>(rank)];
    if (!value.empty()) return true;
    try {
      value = store_.get(prefix_ + std::to_string(rank), deadline);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout) throw;
    }
    return !value.empty();
  }

  // Looks for everybody without waiting for anybody, and names the missing: "[3,7]".
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
  Store& store_;
  const std::string prefix_;
  std::vector<std::string> values_;
};

// Calls `arrived(deadline)` until it says yes, telling now and then, and at the end, who is missing.
void wait_for(Collector& records, Deadline deadline, const std::function<bool(Deadline)>& arrived) {
  const auto start = Deadline::Clock::now();
  Deadline progress = Deadline::after(kProgressEvery);
  while (!arrived(earliest(deadline, progress))) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count();
    const bool over = deadline.expired();
    const std::string missing = over || progress.expired() ? records.missing() : "";
    // What came while the missing were looked for counts.
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
    progress = Deadline::after(kProgressEvery);
  }
}

// Rank 0: everybody's record.
void collect_all(Collector& records, Deadline deadline) {
  int next = 1;
  wait_for(records, deadline, [&](Deadline until) {
    while (next < records.size() && records.collect(next, until)) ++next;
    return next == records.size();
  });
}

// The others: what rank 0 made of them.
std::string fetch_all(Store& store, const std::string& key, Collector& records, Deadline deadline) {
  std::string text;
  wait_for(records, deadline, [&](Deadline until) {
    try {
      text = store.get(key, until);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout) throw;
    }
    return !text.empty();
  });
  return text;
}

std::string value_of(const ProcessRecord& record, const std::string& setting) {
  const auto found = record.settings.find(setting);
  return found == record.settings.end() ? "not set" : found->second;
}

std::string person(const Roster& roster, size_t rank) {
  return person(static_cast<int>(rank), roster.members[rank]);
}

// Every rank compares all with rank 0, so that all come to the same verdict.
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

// An error names both ends, for the record may be unreadable because they differ.
ProcessRecord parse_record(const std::string& text, size_t member, int rank,
                           const ProcessRecord& self) {
  try {
    return ProcessRecord::parse(text);
  } catch (const Exception& exception) {
    throw_error(exception.code(), person(rank, self) + " cannot join rank " +
                                      std::to_string(member) + ": " + exception.error().message);
  }
}

}  // namespace

Roster exchange_records(Store& store, const ProcessRecord& self, const std::string& attempt,
                        int rank, int size, Deadline deadline) {
  if (size < 1 || rank < 0 || rank >= size)
    throw_misuse("rank " + std::to_string(rank) + " is not in 0.." + std::to_string(size - 1));
  const std::string prefix = "hccl_like/" + attempt + "/" + std::to_string(size) + "/";
  const int64_t generation = (store.add(prefix + "arrivals", 1) - 1) / size;
  const std::string below = prefix + std::to_string(generation) + "/";
  const std::string own = self.serialize();
  store.set(below + std::to_string(rank), own);

  Collector records(store, below, size);
  records.set(rank, own);
  std::string all;
  if (rank == 0) {
    collect_all(records, deadline);
    all = hexadecimal(random_u64()) + pack_records(records.values());
    store.set(below + "all", all);
  } else {
    all = fetch_all(store, below + "all", records, deadline);
  }

  const std::string_view text = all;
  Roster roster;
  roster.communicator = parse_communicator(text.substr(0, kCommunicatorDigits));
  for (const std::string& record : unpack_records(
           text.substr(std::min(text.size(), kCommunicatorDigits)), records.values().size()))
    roster.members.push_back(parse_record(record, roster.members.size(), rank, self));
  check_settings(roster);
  return roster;
}

}  // namespace hccl_like
