#pragma once
// Dumps the flight recorder in torch's formats.
#include <optional>
#include <string>

#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

struct DumpOptions {
  bool calls = true;  // false: groups only
  bool stacks = true;
  bool only_active = false;  // only unfinished calls
};

// Pickle for `python -m torch.distributed.flight_recorder.fr_trace`. Takes the GIL for stacks.
std::string dump_pickle(FlightRecorder& recorder, const DumpOptions& options);
// JSON without stacks.
std::string dump_json(FlightRecorder& recorder, const DumpOptions& options);

// Writes the pickle with mode 0600 to TORCH_FR_DUMP_TEMP_FILE + global rank, or through a
// registered DebugInfoWriter. Returns the target. Throws an Exception.
std::string write_dump(FlightRecorder& recorder, int global_rank);

// Writes and logs a dump after the first failure, if enabled.
void dump_after(const Error& error, FlightRecorder& recorder, int global_rank);

}  // namespace hccl_like
