#pragma once
// What torch's worker server answers about this process.
#include <functional>
#include <memory>
#include <string>

#include "process_group/issue/session.h"

namespace hccl_like {

// Every group that is open, and the calls in it that are not over, as JSON.
std::string status_json(Session& session);

// Registers with torch, for any number of servers:
//   hccl_like_fr_trace       the flight recorder as a pickle
//   hccl_like_fr_trace_json  the same as JSON
//   hccl_like_status         status_json()
// The first two take torch's parameters includecollectives, includestacktraces (pickle) and
// onlyactive. Once in a process. `recorder` lives as long as it; `session` gives the open session,
// or null. Both are used by any thread, which does not hold the interpreter's lock.
void register_handlers(FlightRecorder& recorder, std::function<std::shared_ptr<Session>()> session);

}  // namespace hccl_like
