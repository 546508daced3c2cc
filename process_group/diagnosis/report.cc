#include "process_group/diagnosis/report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <nlohmann/json.hpp>

#include "collectives/registry/algorithms.h"

namespace hccl_like {
namespace {

using nlohmann::json;
using Line = RankReport::Call;

constexpr size_t kCalls = 5;
constexpr size_t kRows = 64;

std::string hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string state_of(const FlightEntry& entry) {
  if (entry.completed != 0) return "done";
  if (entry.retired) return "failed";
  return entry.started != 0 ? "running" : "queued";
}

// Converts analyser names, one for each torch variant of a collective, to the names in errors.
std::string spelt(std::string_view name) {
  std::string_view plain = name;
  for (const std::string_view end : {std::string_view("_coalesced"), std::string_view("_v")})
    if (plain.ends_with(end)) plain.remove_suffix(end.size());
  const auto collective = collective_named(plain);
  return std::string(collective ? hccl_like::name(*collective) : name);
}

Line call_of(const FlightEntry& entry, int64_t now_ns) {
  const std::string name = entry.name();
  std::string peer;
  if (name == "send" && entry.peer >= 0) peer = " to " + std::to_string(entry.peer);
  if (name == "recv")
    peer = entry.peer >= 0 ? " from " + std::to_string(entry.peer) : " from any rank";
  const int64_t since = entry.completed != 0 ? entry.completed : entry.created;
  return {.number = entry.number.number(),
          .is_message = entry.number.is_message,
          .name = spelt(name),
          .peer = std::move(peer),
          .state = state_of(entry),
          .since = std::max<int64_t>(0, now_ns - since) / 1'000'000,
          .line = std::string(entry.line)};
}

// Current line of the thread that made the call.
std::string line_of(const FlightEntry& entry, const std::vector<ProgramThread>& threads) {
  const auto found = std::ranges::find(threads, entry.thread, &ProgramThread::id);
  return found == threads.end() ? "" : found->line.text();
}

json to_json(const std::vector<Line>& calls) {
  json all = json::array();
  for (const Line& call : calls)
    all.push_back(
        {call.number, call.is_message, call.name, call.peer, call.state, call.since, call.line});
  return all;
}

std::vector<Line> calls_in(const json& all) {
  std::vector<Line> calls;
  for (const json& one : all) {
    if (calls.size() == 2 * kCalls) break;
    calls.push_back({one.at(0), one.at(1), one.at(2), one.at(3), one.at(4), one.at(5), one.at(6)});
  }
  return calls;
}

// "all_reduce #17", as in errors; "recv #2 from 1"
std::string title(const Line& call) {
  return call.name + " #" + std::to_string(call.number) + call.peer;
}

// "12.3 s"
std::string in_seconds(int64_t ms) {
  const int64_t tenths = (ms + 50) / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

const Line* unfinished(const std::vector<Line>& calls) {
  const auto found =
      std::find_if(calls.rbegin(), calls.rend(), [](const Line& one) { return !one.over(); });
  return found == calls.rend() ? nullptr : &*found;
}

// Ranks in the last "waiting for ranks 2, 3" of this rank's own error: "2, 3".
std::string awaited(const std::string& error) {
  constexpr std::string_view kWaitingFor = "waiting for ";
  const size_t own = error.rfind(" (told to rank ");
  const size_t at = error.rfind(kWaitingFor);
  if (at == std::string::npos || (own != std::string::npos && at < own)) return "-";
  const size_t begin = at + kWaitingFor.size();
  return error.substr(begin, std::min(error.find_first_of(".;:()", begin), error.size()) - begin);
}

constexpr size_t kColumns = 6;

constexpr int kInCall = 2;

struct Row {
  int rank = 0;
  int order = 0;  // suspicious ranks first; kInCall: not suspicious
  std::array<std::string, kColumns> cells;
};

Row row_of(int rank, const std::optional<RankReport>& report, const Line* asked) {
  Row row{.rank = rank, .cells = {std::to_string(rank), "-", "", "-", "-", "-"}};
  if (!report) {
    row.cells[2] = "no answer: stopped, dead or cut off";
    return row;
  }
  row.cells[1] = report->process;
  std::string& since = row.cells[3];
  row.cells[4] = awaited(report->error);
  row.cells[5] = report->line.empty() ? "-" : report->line;
  const Line* const own = unfinished(report->calls);
  const auto same = std::ranges::find_if(report->calls, [&](const Line& one) {
    return asked != nullptr && !asked->is_message && !one.is_message && one.number == asked->number;
  });
  if (same != report->calls.end()) {
    row.order = kInCall;
    row.cells[2] = same->over() ? "over" : same->state == "queued" ? "queued" : "in it";
    if (same->name != asked->name) row.cells[2] += ", as " + same->name;
    since = in_seconds(same->since);
    if (!same->line.empty() && !same->over()) row.cells[5] = same->line;
  } else if (asked != nullptr && !asked->is_message) {
    row.order = 1;
    const auto last =
        std::ranges::find_if(report->calls, [](const Line& one) { return !one.is_message; });
    row.cells[2] = "never made it";
    if (last != report->calls.end()) {
      row.cells[2] += "; its last is " + title(*last);
      since = in_seconds(last->since);
    }
  } else {
    row.order = own != nullptr ? kInCall : 1;
    row.cells[2] = own != nullptr ? "in " + title(*own) : "in no call of this group";
    if (own != nullptr) since = in_seconds(own->since);
  }
  if (!report->elsewhere.empty()) row.cells[2] += "; elsewhere in " + title(report->elsewhere[0]);
  return row;
}

std::vector<Row> rows_of(std::span<const std::optional<RankReport>> reports, const Line* asked) {
  std::vector<Row> rows;
  for (size_t rank = 0; rank < reports.size(); ++rank)
    rows.push_back(row_of(static_cast<int>(rank), reports[rank], asked));
  std::ranges::stable_sort(rows, {}, &Row::order);
  return rows;
}

std::string last_calls(const RankReport& report) {
  std::string text;
  for (const Line& call : report.calls) {
    text += (text.empty() ? "" : "; ") + title(call) + " " + call.state;
    if (!call.line.empty()) text += " at " + call.line;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

RankReport report_of(FlightRecorder& recorder, const GroupView* group,
                     const std::vector<ProgramThread>& threads) {
  RankReport report{.rank = group != nullptr ? group->rank : 0,
                    .process = hostname() + ":" + std::to_string(getpid())};
  const auto main = std::ranges::find_if(threads, &ProgramThread::is_main);
  if (main != threads.end()) report.line = main->line.text();
  const auto entries = recorder.entries();
  const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->number.is_block) continue;  // its calls have entries too
    const bool here = group != nullptr && entry->group->name == group->name;
    const bool runs = !entry->retired && entry->completed == 0;
    if (here && report.calls.size() < kCalls) {
      report.calls.push_back(call_of(*entry, now_ns));
      std::string& line = report.calls.back().line;
      if (line.empty() && entry->completed == 0) line = line_of(*entry, threads);
    }
    if (!here && runs && report.elsewhere.size() < kCalls)
      report.elsewhere.push_back(call_of(*entry, now_ns));
  }
  return report;
}

std::string encode(const RankReport& report) {
  return json{{"rank", report.rank},
              {"process", report.process},
              {"error", report.error},
              {"line", report.line},
              {"calls", to_json(report.calls)},
              {"elsewhere", to_json(report.elsewhere)}}
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

std::optional<RankReport> decode(const std::string& text) {
  try {
    const json all = json::parse(text);
    return RankReport{.rank = all.at("rank"),
                      .process = all.at("process"),
                      .error = all.at("error"),
                      .line = all.at("line"),
                      .calls = calls_in(all.at("calls")),
                      .elsewhere = calls_in(all.at("elsewhere"))};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string table_of(std::span<const std::optional<RankReport>> reports, const RankReport& mine) {
  const Line* const asked = unfinished(mine.calls);
  std::vector<Row> rows = rows_of(reports, asked);
  const size_t left_out = rows.size() > kRows ? rows.size() - kRows : 0;
  rows.resize(rows.size() - left_out);

  Row head{.cells = {"rank", "process", asked ? title(*asked) : "call", "since", "waits for",
                     "program at"}};
  std::array<size_t, kColumns> widths{};
  const auto widen = [&](const Row& row) {
    for (size_t i = 0; i + 1 < widths.size(); ++i)
      widths[i] = std::max(widths[i], row.cells[i].size());
  };
  widen(head);
  std::ranges::for_each(rows, widen);
  std::string text;
  const auto print = [&](const Row& row) {
    text += "\n ";
    for (size_t i = 0; i < widths.size(); ++i) {
      text += " " + row.cells[i];
      if (i + 1 < widths.size()) text += std::string(widths[i] - row.cells[i].size() + 1, ' ');
    }
  };
  print(head);
  std::ranges::for_each(rows, print);
  if (left_out > 0) text += "\n  and " + std::to_string(left_out) + " more ranks";
  text += "\n  last calls, the latest first";
  for (const Row& row : rows)
    if (const auto& report = reports[static_cast<size_t>(row.rank)])
      text += "\n  rank " + std::to_string(row.rank) + ": " + last_calls(*report);
  return text;
}

std::string verdict_of(std::span<const std::optional<RankReport>> reports, const RankReport& mine) {
  constexpr int kMost = 3;
  std::string text;
  int said = 0;
  for (const Row& row : rows_of(reports, unfinished(mine.calls))) {
    if (row.order == kInCall || ++said > kMost) break;
    const auto& [rank, process, state, since, awaited, line] = row.cells;
    text += " Rank " + rank;
    if (process == "-") {
      text += " does not answer: it is stopped, dead or cut off.";
      continue;
    }
    text += " (" + process + ") " + (state.starts_with("never") ? state : "is " + state);
    text += (line == "-" ? "" : "; it is at " + line) + ".";
  }
  return text;
}

}  // namespace hccl_like
