#pragma once
// What a rank tells the others of itself when a call has run into its time-out, and the table that
// comes of it.
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
    uint64_t number = 0;  // of its kind
    bool is_message = false;
    std::string name;   // "all_reduce", "recv"
    std::string peer;   // of a message: " from 1"
    std::string state;  // "queued", "running", "failed" or "done"
    int64_t since = 0;  // milliseconds from its end if it is done, else from the call
    std::string line;   // of the program: where it waits, or, with HCCL_LIKE_CALL_SITES, was made
    bool over() const { return state == "done"; }
  };
  int rank = 0;
  std::string process;          // "host:pid"
  std::string error;            // the rank's own; empty if it knows of none
  std::string line;             // where the program's main thread is
  std::vector<Call> calls;      // its last in the group, the latest first
  std::vector<Call> elsewhere;  // those that run in other groups
};

// What the recorder knows of the calls in `group`, which may be null if there were none.
RankReport report_of(FlightRecorder& recorder, const GroupView* group,
                     const std::vector<ProgramThread>& threads);

std::string encode(const RankReport& report);
// Nothing if that is no report: it comes from outside.
std::optional<RankReport> decode(const std::string& text);

// A few lines for people; `reports` by rank, `mine` is one of them. The calls are held against the
// first of `mine` that is not over.
std::string table_of(std::span<const std::optional<RankReport>> reports, const RankReport& mine);

}  // namespace hccl_like
