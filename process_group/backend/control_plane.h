#pragma once
// Answers of torch's worker server about this process.
#include <functional>
#include <memory>
#include <string>

#include "process_group/issue/session.h"

namespace hccl_like {

// All open groups and their unfinished calls, as JSON.
std::string status_json(Session& session);

// Registers these handlers with torch, once in a process, for any number of servers:
//   hccl_like_fr_trace       the flight recorder as a pickle
//   hccl_like_fr_trace_json  the same as JSON
//   hccl_like_status         status_json()
// The first two take torch's parameters includecollectives, includestacktraces (pickle) and
// onlyactive. `recorder` is never destroyed. `session` returns the open session or null. Handlers
// use both on any thread, without the GIL.
void register_handlers(FlightRecorder& recorder, std::function<std::shared_ptr<Session>()> session);

}  // namespace hccl_like
