#pragma once
// What the flight recorder holds, as torch's tools read it.
#include <optional>
#include <string>

#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

struct DumpOptions {
  bool calls = true;  // else groups only
  bool stacks = true;
  bool only_active = false;  // calls that are not over
};

// A pickle for `python -m torch.distributed.flight_recorder.fr_trace`. With stacks, takes the
// interpreter's lock.
std::string dump_pickle(FlightRecorder& recorder, const DumpOptions& options);
// The same as text; has no stacks.
std::string dump_json(FlightRecorder& recorder, const DumpOptions& options);

// Writes the pickle where torch's own recorder would, for the owner's eyes only:
// TORCH_FR_DUMP_TEMP_FILE followed by the global rank, or whatever a registered DebugInfoWriter
// does. Returns where. Throws an Exception.
std::string write_dump(FlightRecorder& recorder, int global_rank);

// After a failure: writes a dump if this is the first and the user has not turned that off, and
// says so in the log.
void dump_after(const Error& error, FlightRecorder& recorder, int global_rank);

}  // namespace hccl_like
