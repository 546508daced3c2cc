#include "transport/mesh/exchange.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "transport/mesh/group_entries.h"
#include "transport/mesh/report.h"
#include "transport/mesh/roster.h"

namespace hccl_like {
namespace {

constexpr size_t kDigits = kMarkDigits;
constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

uint64_t parse_communicator(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + kDigits || value == 0)
    throw_error(ErrorCode::kMismatch,
                "rank 0's list of the ranks in the store is malformed; check that no other program "
                "writes there");
  return value;
}

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
ProcessRecord parse_record(const nlohmann::json& stored, size_t member, int rank,
                           const ProcessRecord& self, const JobKey& job) {
  std::string text = stored.is_string() ? stored.get<std::string>() : std::string();
  const bool proved = !text.starts_with(kUnproved);
  // An invalid proof of unknown length follows an unproved record.
  if (!proved) text = text.substr(1, text.rfind('}'));
  const auto cannot_join = [&](ErrorCode code, const std::string& why) {
    if (stored.is_object()) text = stored.dump(-1, ' ', true, kReplace);
    throw_error(code, hccl_like::person(rank, self) + " cannot join " +
                          hccl_like::person(static_cast<int>(member), text) + ": " + why);
  };
  try {
    ProcessRecord record =
        stored.is_object() ? ProcessRecord::from_json(stored) : ProcessRecord::parse(text);
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
  size_t member = 0;
  bool in_record = false;
  try {
    visit_records(list.substr(0, list.rfind(']') + 1), ranks, [&](const nlohmann::json& record) {
      in_record = true;
      parse_record(record, member++, rank, self, job);
      in_record = false;
    });
  } catch (const Exception&) {
    if (in_record) throw;  // else it is no list of another version either
  }
  throw_error(ErrorCode::kMismatch,
              "rank 0's list of the ranks in the store is not authentic: " + why_unproved(job));
}

}  // namespace

Roster exchange_records(Store& store, const JobKey& job, const ProcessRecord& self, int rank,
                        int size, Deadline deadline, std::string_view scope,
                        RosterCourier* courier) {
  if (size < 1 || rank < 0 || rank >= size)
    throw_misuse("rank " + std::to_string(rank) + " is not in 0.." + std::to_string(size - 1));
  ProvedStore proved(store, job, scope);
  GroupEntries entries(proved, courier, rank, size, self.serialize(), deadline);
  const proof::Opened all = rank == 0 ? entries.lead() : entries.join();
  if (courier != nullptr && all.proved) entries.hand_down(all.value);

  const auto ranks = static_cast<size_t>(size);
  if (!all.proved) refuse_list(all.value, ranks, rank, self, job);
  const std::string_view text = all.value;
  Roster roster;
  roster.communicator = parse_communicator(text.substr(0, kDigits));
  visit_records(records_in(text, ranks), ranks, [&](const nlohmann::json& record) {
    roster.members.push_back(parse_record(record, roster.members.size(), rank, self, job));
  });
  check_settings(roster);
  return roster;
}

}  // namespace hccl_like
