#pragma once
// State reports that ranks exchange after a timeout, and their table.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/program.h"

namespace hccl_like {

struct RankReport {
  struct Call {
    uint64_t number = 0;  // number within its kind
    bool is_message = false;
    std::string name;   // "all_reduce", "recv"
    std::string peer;   // for a message: " from 1"
    std::string state;  // "queued", "running", "failed" or "done"
    int64_t since = 0;  // ms since its end if done, else since the call
    std::string line;   // program line of its wait or (HCCL_LIKE_CALL_SITES) of the call
    bool over() const { return state == "done"; }
  };
  int rank = 0;
  std::string process;          // "host:pid"
  std::string error;            // the rank's own error, or empty
  std::string line;             // line of the main thread
  std::vector<Call> calls;      // last calls in the group, latest first
  std::vector<Call> elsewhere;  // running calls of other groups
};

// Report of the recorder's calls in `group`; null if the group made none.
RankReport report_of(FlightRecorder& recorder, const GroupView* group,
                     const std::vector<ProgramThread>& threads);

std::string encode(const RankReport& report);
// Validates untrusted input; nothing if it is malformed.
std::optional<RankReport> decode(const std::string& text);

// Table for the log. `reports`, by rank, include `mine`, whose first unfinished call is the
// reference.
std::string table_of(std::span<const std::optional<RankReport>> reports, const RankReport& mine);

// For the error: a sentence about each rank that did not answer or is not in that call, up to
// three; empty if there is none.
std::string verdict_of(std::span<const std::optional<RankReport>> reports, const RankReport& mine);

}  // namespace hccl_like
